package BenchAccept;

# The bench's rows of accepting: a request that is on the disk, synced, before
# its 202; with those that come together in one commit, as it is, and with a
# commit for each of them.
#
#   my $accept = BenchAccept->new(site => \%site, ungrouped => $module);
#   my @rows = $accept->rows;
#   my @targets = $accept->targets;     # as BenchRun->print_targets takes them
#
# The one that is compared with is the same module, built with groups of one:
# same statements, same file system, same settings of SQLite, and what waits
# meanwhile waits in the worker, not for a lock of SQLite's, which would be
# slower still.  Whether it is what it says, the column "commits" shows: of
# each request.
#
# Each request is another user's, or it would be the same one again.  Nothing
# drains: the target is called once a day.  Files are where temporary ones are
# (TMPDIR): what a commit costs is that disk's matter, and is measured first.

use strict;
use warnings;

use Fcntl qw(O_CREAT O_WRONLY);
use IO::Handle ();

use IapGuard::Loop;
use IapGuard::Nginx;

use constant {
    BODY   => 2000,             # bytes: a signed transaction
    USERS  => 1_000_000_000,
    SYNCS  => 200,
    AT_LEAST => 6,              # times as many requests a second
};


sub new {
    my ($class, %options) = @_;
    my $self = bless { %options }, $class;
    my %site = %{ $self->{site} };

    $self->{grouped} = $self->_site(%site);
    $self->{each}    = $self->_site(%site, module => $self->{ungrouped});

    return $self;
}


sub _site {
    my ($self, %site) = @_;
    my $nginx  = IapGuard::Nginx->new(%site);
    my $ledger = $nginx->file('ledger');

    # the workers' own folder

    mkdir $ledger or die "$ledger: $!\n";
    chmod 0777, $ledger or die "$ledger: $!\n";

    return $nginx->configure(http => <<"END", server => <<'END')->start;
    iap_guard_zone    iap 4m;
    iap_guard_ledger  $ledger/ledger.db timeout=30s;
    iap_guard_queue   receipts target=http://127.0.0.1:1/ rate=1r/d
                      max=100000000;
END
        location = /accept {
            iap_guard         accept;
            iap_guard_user    $http_x_user_id;
            iap_guard_accept  receipts;
        }
END
}


sub rows {
    my ($self) = @_;

    my %row = (path => '/accept', processes => {}, must => ['commits'],
               send => { header => 'X-User-Id:user%d', last => USERS,
                         order => 'random', body => BODY });

    return map {
        my ($id, $site, $name) = @$_;
        my $commits = sub {
            $site->metrics->{iap_guard_ledger_commit_seconds_count}
        };

        +{ %row, id => $id, name => $name, site => $site,
           counts => { commits => $commits } };
    } ['accept', $self->{grouped}, 'accepted on the disk, as it is'],
      ['accept_each', $self->{each}, 'accepted on the disk, a commit for each'];
}


# That it was a commit for each; the drain has few of its own

sub check {
    my ($self, $run, @rows) = @_;

    foreach my $row (grep { $_->{id} eq 'accept_each' } @rows) {
        my $commits = $run->median($row, 'commits');
        die "$row->{name}: $commits commits\n"
            if $commits < 0.99 || $commits > 1.1;
    }

    return;
}


# Microseconds of one sync of 4 KB behind each other, in the middle

sub sync_us {
    my ($self) = @_;
    my $path = $self->{grouped}->file('sync');
    my @took;

    sysopen my $file, $path, O_CREAT | O_WRONLY or die "$path: $!\n";

    for (1 .. SYNCS) {
        my $begun = IapGuard::Loop::now();
        syswrite $file, 'x' x 4096;
        $file->sync or die "$path: $!\n";
        push @took, 1e6 * (IapGuard::Loop::now() - $begun);
    }

    unlink $path;

    return (sort { $a <=> $b } @took)[SYNCS / 2];
}


sub targets {
    return (
        { name => 'accept / one commit per request: requests/s',
          at_least => AT_LEAST, rows => [qw(accept accept_each)],
          of => sub { $_[0]{rate} / $_[1]{rate} } },
        { name => 'accept / one commit per request: p99',
          rows => [qw(accept accept_each)],
          of => sub { $_[0]{p99} / $_[1]{p99} } },
    );
}


1;
