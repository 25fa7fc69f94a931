package BenchRun;

# What the bench measures with, and how it prints what came out.
#
# A row is one case: { name, site, path, send }, where `site` is a running
# IapGuard::Nginx and `send` is what IapGuard::Wrk's senders send.  `processes`
# are those whose CPU time is taken, by a name that becomes a column; not
# given, it is nginx's one worker.  `counts` are functions, by such a name,
# that tell how often something has happened; those in `must` it has to, in
# every run.  Processes and counts are given per request.
#
#   my $run = BenchRun->new(seconds => 2);
#   $run->measure($row);            # once for each round
#   my $us  = $run->median($row, 'nginx');
#   my $x   = $run->ratio(sub { ... }, @rows);
#
# A ratio is taken in each round, of runs that lie close together, and the
# median of these is what counts: the machine's speed changes meanwhile.

use strict;
use warnings;

use POSIX ();

use IapGuard::Wrk;

use constant CONNECTIONS => 64;


sub new {
    my ($class, %options) = @_;
    return bless { seconds => 2, wrk_cpu => undef, %options,
                   results => {} }, $class;
}


# A run of a row.  It is kept under the row's name.

sub measure {
    my ($self, $row) = @_;

    my $before = readings($row);
    my $wrk    = $self->wrk($row)->result;
    my $after  = readings($row);

    die "$row->{name}: $wrk->{requests} requests, "
        . IapGuard::Wrk->failures($wrk) . " of them failed\n"
        if !$wrk->{requests} || IapGuard::Wrk->failures($wrk);

    # a row of refusals has to refuse (limit_req lets some by each minute),
    # every other one must not

    my $refused = $wrk->{status} / $wrk->{requests};
    die sprintf "%s: %.1f %% refused\n", $row->{name}, 100 * $refused
        if $refused < ($row->{refused} ? 0.95 : 0)
           || $refused > ($row->{refused} ? 1 : 0);

    my $result = {
        (map { $_ => ($after->{$_} - $before->{$_}) / $wrk->{requests} }
             keys %$after),
        rate => $wrk->{requests} / $wrk->{seconds},
        p99  => $wrk->{p99},
    };

    foreach my $count (grep { $result->{$_} <= 0 } @{ $row->{must} || [] }) {
        die "$row->{name}: no $count\n";
    }

    push @{ $self->{results}{ $row->{name} } }, $result;

    return $result;
}


sub readings {
    my ($row) = @_;

    my %pids   = $row->{processes} ? %{ $row->{processes} }
                                   : (nginx => $row->{site}->workers);
    my %counts = %{ $row->{counts} || {} };

    return { (map { $_ => cpu_us($pids{$_}) } keys %pids),
             (map { $_ => $counts{$_}->() } keys %counts) };
}


sub wrk {
    my ($self, $row, %options) = @_;

    return IapGuard::Wrk->start(
        url => $row->{site}->url($row->{path}), connections => CONNECTIONS,
        seconds => $self->{seconds}, cpu => $self->{wrk_cpu},
        send => $row->{send}, %options);
}


sub results {
    my ($self, $row) = @_;
    return @{ $self->{results}{ $row->{name} } || [] };
}


sub median {
    my ($self, $row, $what) = @_;
    return median_of(map { $_->{$what} } $self->results($row));
}


# The median over the rounds of what $code makes of the rows' results.

sub ratio {
    my ($self, $code, @rows) = @_;
    my @results = map { [$self->results($_)] } @rows;

    return median_of(map { my $i = $_; $code->(map { $_->[$i] } @results) }
                     0 .. $#{ $results[0] });
}


sub median_of {
    my @sorted = sort { $a <=> $b } @_;
    my $n = @sorted;

    return $n % 2 ? $sorted[$n / 2]
                  : ($sorted[$n / 2 - 1] + $sorted[$n / 2]) / 2;
}


# User and system time of a process.  The first number of schedstat is their
# sum, but in ns instead of ticks.

sub cpu_us {
    my ($pid) = @_;

    if (open my $file, '<', "/proc/$pid/schedstat") {
        my ($ns) = split / /, <$file>;
        return $ns / 1000;
    }

    open my $file, '<', "/proc/$pid/stat" or die "process $pid is gone\n";
    my @stat = split / /, <$file> =~ s/.*\) //r;

    return ($stat[11] + $stat[12]) * 1e6
           / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}


# The processors that we may use.

sub cpus {
    open my $file, '<', '/proc/self/status' or return;

    foreach my $line (<$file>) {
        next unless $line =~ /^Cpus_allowed_list:\s*(\S+)/;
        return map { /^(\d+)-(\d+)$/ ? $1 .. $2 : $_ } split /,/, $1;
    }

    return;
}


sub print_rows {
    my ($self, @rows) = @_;
    my %columns = map { map { $_ => 1 } keys %$_ }
                  map { $self->results($_) } @rows;
    my @columns = ((sort grep { !/^(?:rate|p99)$/ } keys %columns),
                   'rate', 'p99');
    my %titles  = (rate => 'requests/s', p99 => 'p99 ms',
                   map { map { $_ => $_ } keys %{ $_->{counts} || {} } }
                   @rows);

    printf '%-46s', 'what';
    printf '%12s', $titles{$_} || "$_ us" foreach @columns;
    print "\n";

    foreach my $row (@rows) {
        printf '%-46s', $row->{name};

        foreach my $column (@columns) {
            my @values = grep { defined } map { $_->{$column} }
                                          $self->results($row);

            printf $column eq 'rate' ? '%12.0f' : '%12.2f', median_of(@values)
                if @values;
            printf '%12s', '-' unless @values;
        }

        print "\n";
    }

    return;
}


# The targets of which all rows were measured.  One is its name, the ids of
# its rows, and what of their results it is; the rest is as in print_target.

sub print_targets {
    my ($self, $rows, @targets) = @_;
    my %rows = map { $_->{id} => $_ } @$rows;

    foreach my $target (@targets) {
        my @of = map { $rows{$_} } @{ $target->{rows} };

        next if grep { !defined } @of;

        $self->print_target(%$target,
                            value => $self->ratio($target->{of}, @of));
    }

    return;
}


# What a target is about, the value reached, and at_most or at_least what it
# should be; with neither it is no target, but worth to know.  Two `places`
# behind the point are shown if nothing else is said.

sub print_target {
    my ($class, %target) = @_;
    my ($name, $value) = @target{qw(name value)};
    my ($most, $least) = @target{qw(at_most at_least)};
    my $places = $target{places} // 2;

    printf '%-60s %7.*f', $name, $places, $value;

    if (defined $most) {
        printf '  at most  %6.*f  %s', $places, $most,
               $value <= $most ? 'meets' : 'misses';

    } elsif (defined $least) {
        printf '  at least %6.*f  %s', $places, $least,
               $value >= $least ? 'meets' : 'misses';
    }

    print "\n";
    return;
}


1;
