#!/usr/bin/perl

# What hangs out there holds nobody up in here: names that are not found in
# time, TLS that does not shake hands, a service that takes a callback and says
# nothing.  Another location is asked all the while.

use strict;
use warnings;

use File::Temp ();
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::RawServer;

use constant {
    SECONDS => 3,
    ALLOWED => 0.05,        # seconds that another location may take
};

my %paths = IapGuard::Nginx->options;

names();
tls();
hooks();
done_testing;


sub test {
    my (%options) = @_;

    return IapGuard::DrainTest->new(paths => \%paths, workers => 1,
        breaker => undef, %options,
        queue => join ' ', 'rate=200r/s attempts=5 retry_min=50ms',
                 'retry_max=200ms timeout=20s', $options{queue} || '');
}


# Of many requests one after the other hardly any takes longer than allowed; on
# a machine with other work one may

sub nobody_waits {
    my ($test, $name) = @_;
    my $until = IapGuard::Loop::now() + SECONDS;
    my @took;

    while (IapGuard::Loop::now() < $until) {
        my $answer = $test->nginx->get('/other');
        push @took, $answer->{error} ? 99 : $answer->{seconds};
        sleep 0.002;
    }

    @took = sort { $a <=> $b } @took;
    my $most = $took[ int(@took * 0.99) ];

    cmp_ok $most, '<', ALLOWED, sprintf '%s: 99 of 100 of %d requests'
        . ' elsewhere within %.1f ms, the longest took %.1f ms', $name,
        scalar @took, 1000 * $most, 1000 * $took[-1];
    cmp_ok $took[-1], '<', 0.4, "$name: none waits for it";

    return;
}


# A libc whose look-ups of "hang.test" take long, and of "none.test" fail

sub slow_names {
    my $folder = File::Temp->newdir('iap_names-XXXXXX', TMPDIR => 1);
    chmod 0755, "$folder";

    open my $source, '>', "$folder/names.c" or die "names.c: $!\n";
    print {$source} <<'END';
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int
getaddrinfo(const char *node, const char *service,
    const struct addrinfo *hints, struct addrinfo **res)
{
    int (*libc)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **);

    *(void **) &libc = dlsym(RTLD_NEXT, "getaddrinfo");

    if (node && strcmp(node, "hang.test") == 0) {
        usleep(7000000);
        return EAI_AGAIN;
    }

    if (node && strcmp(node, "none.test") == 0) {
        return EAI_NONAME;
    }

    return libc(node, service, hints, res);
}
END
    close $source;

    system('cc', '-shared', '-fPIC', '-O1', '-o', "$folder/names.so",
           "$folder/names.c", '-ldl') == 0 or die "cc failed\n";

    return $folder;
}


sub names {

    # AddressSanitizer wants to come before any other library

    return note('no names with AddressSanitizer')
        if IapGuard::Nginx->new(%paths)->asan;

    my $folder = slow_names();
    my $test   = do {
        local $ENV{LD_PRELOAD} = "$folder/names.so";
        test(queue => 'target=http://hang.test:1/verify');
    };

    my @tickets = $test->put_many(5);
    nobody_waits($test, 'a name that hangs');

    # what is accepted meanwhile is: other threads are free

    my $begun = IapGuard::Loop::now();
    $test->put({ id => 'meanwhile' });
    cmp_ok IapGuard::Loop::now() - $begun, '<', 0.5, 'and others are accepted';

    ok $test->nginx->wait_for(8, sub {
        $test->nginx->log_lines(qr/calls of queue "receipts" fail: .*look-up/)
    }), 'the log says what is wrong';

    $test->configure(queue => $test->{queue} =~ s{hang\.test}{none.test}r);
    $test->nginx->reload;
    nobody_waits($test, 'a name that there is not');

    my $target = '127.0.0.1:' . $test->peers->port;
    $test->configure(queue => $test->{queue} =~ s{none\.test:1}{$target}r);
    $test->nginx->reload;

    # each had some of its attempts

    my %statuses;
    $statuses{ $test->ended($_, 20)->{status} }++ foreach @tickets;
    is_deeply \%statuses, { verified => 5 }, 'when it is found, all are verified'
        or diag explain \%statuses;

    $test->end;

    return;
}


sub tls {
    my $mute = IapGuard::RawServer->start;
    my $test = test(queue => 'target=https://127.0.0.1:' . $mute->port
                             . '/verify');

    $test->put_many(20);
    nobody_waits($test, 'TLS that stalls');
    my $queue = $test->queue;
    is $queue->{pending}, 20, 'they wait';

    $test->end;

    return;
}


sub hooks {
    my $test = test();

    $test->peers->always('/hook', 'hang');
    $test->put_many(60);
    nobody_waits($test, 'a callback that hangs');
    ok $test->nginx->wait_for(10, sub { $test->queue->{verified} == 60 }),
        'and the queue goes on';
    cmp_ok $test->peers->count('/hook'), '<=', 8,
        'no more than its concurrency at once';

    $test->end;

    return;
}
