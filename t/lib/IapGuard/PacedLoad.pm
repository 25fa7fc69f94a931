package IapGuard::PacedLoad;

# A load as honest users make it, from a process of its own: each connection
# asks, gets its answer, and waits a while.  What came of each request is kept
# with its time, so that one can ask about a part of the run afterwards.
#
#   my $load = IapGuard::PacedLoad->start(
#       port => $nginx->port, connections => 48, pause => 0.04,
#       paths => ['/guarded', '/guarded', '/plain']);
#
#   my $from = IapGuard::Loop::now();
#   ...
#   $load->stop;
#   my $part = $load->part('/guarded', $from, IapGuard::Loop::now());
#   $part->{n}; $part->{p99}; $part->{stores}{fallback};
#
# Users are all distinct.  Connections are kept.  A part has
#
#   n          requests that began in it
#   p50 p99 max  their milliseconds
#   statuses   { 200 => 17 }; those without an answer are in `errors`, as text
#   stores     { redis => 17 }, by the answer's X-Store
#   requests   [begun, seconds, status or error, store], in order

use strict;
use warnings;

use File::Temp ();

use IapGuard::Child;
use IapGuard::LoadClient;
use IapGuard::Loop;


sub start {
    my ($class, %options) = @_;

    my $self = bless {
        connections => 48, pause => 0.04, timeout => 10, prefix => 'u',
        %options,
        file => File::Temp->new(TEMPLATE => 'iap_guard-load-XXXXXX',
                                TMPDIR => 1),
    }, $class;

    $self->{child} = IapGuard::Child->start(sub { return $self->_run(@_) });

    return $self;
}


sub running { return $_[0]{child}->running }


sub stop {
    my ($self) = @_;
    my $status = $self->{child}->stop;

    die "the load failed\n" if $status != 0;
    return;
}


# Of all requests to a path that began between two moments.  May be asked for
# while the load runs: what has been answered a moment ago may be missing.

sub part {
    my ($self, $path, $from, $to) = @_;
    my @requests = sort { $a->[0] <=> $b->[0] }
                   grep { $_->[0] >= $from && $_->[0] < $to }
                        @{ $self->_requests->{$path} || [] };

    my %part = (n => scalar @requests, requests => \@requests,
                statuses => {}, stores => {}, errors => []);

    foreach my $request (@requests) {
        my (undef, undef, $status, $store) = @$request;

        if ($status =~ /^\d+$/) {
            $part{statuses}{$status}++;
            $part{stores}{$store}++;
        } else {
            push @{ $part{errors} }, $status;
        }
    }

    my @ms = sort { $a <=> $b } map { 1000 * $_->[1] } @requests;

    foreach my $share ([p50 => 0.5], [p99 => 0.99], [max => 1]) {
        $part{ $share->[0] } = @ms ? $ms[ int $share->[1] * $#ms ] : 0;
    }

    return \%part;
}


# Those to a path that were answered last, the latest first, as long as a
# function says so.

sub look_back {
    my ($self, $path, $more) = @_;

    foreach my $request (reverse @{ $self->_requests->{$path} || [] }) {
        $more->($request) or last;
    }

    return;
}


# { path => [[begun, seconds, status or error, store], ...] }, in the order of
# the answers

sub _requests {
    my ($self) = @_;

    seek $self->{file}, $self->{read} || 0, 0 or die "the load's file: $!\n";

    while (my $line = readline $self->{file}) {
        last unless $line =~ s/\n\z//;         # the rest of it is to come

        my ($path, @request) = split /\t/, $line;
        push @{ $self->{requests}{$path} }, \@request;
        $self->{read} += length($line) + 1;
    }

    return $self->{requests} || {};
}


sub _run {
    my ($self, $gone) = @_;
    my ($loop, $done, $number) = (IapGuard::Loop->new, 0, 0);
    my @paths = @{ $self->{paths} };

    # it measures: on a busy machine, too, before all others

    system "chrt -f -p 1 $$ > /dev/null 2>&1";

    open my $out, '>>', $self->{file}->filename
        or die "the load's file: $!\n";

    # each a connection of its own: from a pool few would be taken again and
    # again, of one worker perhaps, and from another worker hardly any

    my @clients = map {
        IapGuard::LoadClient->new(loop => $loop, connections => 1,
                                  map { $_ => $self->{$_} } qw(port timeout));
    } 1 .. $self->{connections};

    my $ask;

    $ask = sub {
        my ($client) = @_;

        return if $done;

        my $path = $paths[ $number++ % @paths ];

        $client->request(
            { method => 'GET', path => $path,
              headers => { 'X-User-Id' => "$self->{prefix}$number" } },
            sub {
                my ($answer) = @_;
                my $now = IapGuard::Loop::now();

                printf {$out} "%s\t%.6f\t%.6f\t%s\t%s\n", $path,
                    $now - $answer->{seconds}, $answer->{seconds},
                    $answer->{status} || $answer->{error},
                    $answer->{headers}{'x-store'} || '-';

                $loop->after($self->{pause} * (0.5 + rand),
                             sub { $ask->($client) });
            });
    };

    $loop->on_read($gone, sub { $done = 1 });
    foreach my $client (@clients) {
        $loop->after($self->{pause} * rand, sub { $ask->($client) });
    }

    # what is under way is still answered

    $loop->run_until(sub { $done && !grep { $_->busy } @clients });
    close $out or die "the load's file: $!\n";

    return 0;
}


1;
