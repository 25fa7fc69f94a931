package IapGuard::Frames;

# HTTP/2 frame by frame, for what no client would do: leave within an answer,
# reset a stream, announce a body that never comes.
#
#   use IapGuard::Frames qw(frame head talk);
#
#   talk(head(1, GET => '/t', END_STREAM), close_after => 0.1);
#
# Options are those of IapGuard::Test's http_raw().

use strict;
use warnings;

use Exporter qw(import);

use IapGuard::Test qw(http_raw);

our @EXPORT_OK = qw(frame head talk DATA RST_STREAM END_STREAM);

use constant { DATA => 0, HEADERS => 1, RST_STREAM => 3, SETTINGS => 4,
               GOAWAY => 7 };

use constant { END_STREAM => 0x1, END_HEADERS => 0x4 };


sub frame {
    my ($type, $flags, $stream, $payload) = @_;

    return substr(pack('N', length $payload), 1)
           . pack('CCN', $type, $flags, $stream) . $payload;
}


# a request's head; nothing in it is compressed

sub head {
    my ($stream, $method, $path, $flags, %header) = @_;

    my $block = "\x02" . chr(length $method) . $method
                . "\x86"
                . "\x04" . chr(length $path) . $path
                . "\x01\x09localhost";

    foreach my $name (sort keys %header) {
        $block .= "\0" . chr(length $name) . $name
                  . chr(length $header{$name}) . $header{$name};
    }

    return frame(HEADERS, $flags | END_HEADERS, $stream, $block);
}


# what a connection begins with

sub preface {
    return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame(SETTINGS, 0, 0, '');
}


# sends frames, to h2.sock if nothing else is said, and tells what came back:
# "STREAM:body" for each stream that was answered to its end, "STREAM!code" for
# one that was reset

sub talk {
    my ($frames, %opt) = @_;

    my @pieces = ref $frames ? @$frames : ($frames);
    $pieces[0] = preface() . $pieces[0];

    my $answer = http_raw(\@pieces, unix => 'h2.sock', close_after => 0.5,
                          %opt);
    my (%body, @ends);

    while (length $answer >= 9) {
        my ($high, $low, $type, $flags, $stream)
            = unpack 'CnCCN', substr $answer, 0, 9, '';
        my $payload = substr $answer, 0, $high * 65536 + $low, '';

        $body{$stream} .= $payload if $type == DATA;

        push @ends, "$stream:" . ($body{$stream} // '')
            if ($type == DATA || $type == HEADERS) && $flags & END_STREAM;

        push @ends, "$stream!" . unpack 'N', $payload if $type == RST_STREAM;
        push @ends, 'goaway' if $type == GOAWAY;
    }

    return join ' ', map { s/\{"error":"(\w+)".*\}\n/$1/r } @ends;
}


1;
