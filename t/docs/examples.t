#!/usr/bin/perl

# The examples that docs/activation.md gives to receivers of webhooks: each
# takes what is genuine, and nothing else.

use strict;
use warnings;

use Digest::SHA qw(hmac_sha256_base64);
use File::Temp qw(tempdir);
use FindBin;
use MIME::Base64 qw(decode_base64);
use Test::More;

my $examples = "$FindBin::Bin/../../docs/examples";
my $folder   = tempdir(CLEANUP => 1);
my $secret   = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
my $body     = '{"type":"receipt.verified","data":{"key":"1"}}';
my $now      = time;

system('cc', '-Wall', '-Wextra', '-Werror', '-o', "$folder/verify",
       "$examples/verify.c", '-lcrypto') == 0
    or BAIL_OUT('verify.c does not compile');

write_file("$folder/secret", "$secret\n");
write_file("$folder/other", "whsec_" . 'A' x 32 . "\n");
write_file("$folder/none", "secret\n");

my $good = signature($now, $body);

# name, what is expected, secret's file, id, timestamp, signature, body

my @cases = (
    [ 'genuine', 0, 'secret', 'msg_1', $now, $good, $body ],
    [ 'four minutes ago', 0, 'secret', 'msg_1', $now - 240,
      signature($now - 240, $body), $body ],
    [ 'two signatures', 0, 'secret', 'msg_1', $now, "v1,AAAA $good", $body ],
    [ 'an empty body', 0, 'secret', 'msg_1', $now, signature($now, ''), '' ],
    [ 'another body', 1, 'secret', 'msg_1', $now, $good, "$body " ],
    [ 'another id', 1, 'secret', 'msg_2', $now, $good, $body ],
    [ 'another time', 1, 'secret', 'msg_1', $now + 1, $good, $body ],
    [ 'another secret', 1, 'other', 'msg_1', $now, $good, $body ],
    [ 'an old message', 1, 'secret', 'msg_1', $now - 400,
      signature($now - 400, $body), $body ],
    [ 'a message from the future', 1, 'secret', 'msg_1', $now + 400,
      signature($now + 400, $body), $body ],
    [ 'another version', 1, 'secret', 'msg_1', $now, $good =~ s/v1/v2/r,
      $body ],
    [ 'a part of the signature', 1, 'secret', 'msg_1', $now,
      substr($good, 0, -1), $body ],
    [ 'no signature', 1, 'secret', 'msg_1', $now, '', $body ],
    [ 'no time', 1, 'secret', 'msg_1', 'now', $good, $body ],
    [ 'no secret', 2, 'none', 'msg_1', $now, $good, $body ],
);

foreach my $case (@cases) {
    my ($name, $expected, $file, @fields) = @$case;
    my $text = pop @fields;

    write_file("$folder/body", $text);

    foreach my $program ("$folder/verify", "$examples/verify.py") {
        my $rc = system 'sh', '-c',
            'exec "$@" < "$0" > /dev/null 2>&1', "$folder/body",
            ($program =~ /\.py$/ ? ('python3') : ()), $program,
            "$folder/$file", @fields;

        is $rc >> 8, $expected, "$name: " . ($program =~ m{([^/]+)$})[0];
    }
}

done_testing;


sub signature {
    my ($time, $text) = @_;
    my $mac = hmac_sha256_base64("msg_1.$time.$text",
                                 decode_base64(substr $secret, 6));

    return "v1,$mac=";
}


sub write_file {
    my ($path, $text) = @_;

    open my $file, '>', $path or die "$path: $!\n";
    print {$file} $text;
    close $file or die "$path: $!\n";

    return;
}
