#!/usr/bin/perl

# The demo: a site with the module, honest users, attacks, and a table of who
# got through; a campaign, and who got a unit; then an outage of Apple's, and
# what becomes of those who buy.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin, "$FindBin::Bin/../lib";

use Cwd qw(abs_path);
use Getopt::Long;

use DemoCampaign;
use DemoOutage;
use DemoReport;
use DemoSenders;
use DemoSite;
use DemoTraffic;

my $USAGE = <<"EOF";
usage: demo.pl [--module=FILE] [--nginx=FILE] [--once] [--keep]

    --module=FILE  the dynamic module; not given: nginx was built with it
    --nginx=FILE   the nginx binary (/usr/sbin/nginx)
    --once         end after the tables, with 0 if all is what it should be
    --keep         leave the scratch folder
EOF

my $signal;         # that asked us to stop

$| = 1;
exit main();


sub main {
    my %options = (nginx => '/usr/sbin/nginx');

    my $understood = GetOptions(\%options, 'module=s', 'nginx=s', 'once',
                                'keep', 'help') && !@ARGV;

    if (!$understood || $options{help}) {
        print { $understood ? *STDOUT : *STDERR } $USAGE;
        return $understood ? 0 : 2;
    }

    foreach my $file (grep { defined } @options{qw(module nginx)}) {
        $file = abs_path($file) || $file;
    }

    local @SIG{qw(INT TERM HUP PIPE)} = (sub { $signal = shift }) x 4;

    my $site = DemoSite->new(%options);
    my $rc   = eval { run($site, $options{once}) };
    my $error = $@;

    # a second Ctrl-C must not leave anything running

    local @SIG{qw(INT TERM HUP PIPE)} = ('IGNORE') x 4;

    $site->stop;
    print 'left in ', $site->folder, "\n" if $options{keep};

    return $rc if defined $rc;

    print STDERR "\ndemo: $error";
    return 1;
}


sub run {
    my ($site, $once) = @_;

    $site->start;
    print 'the module in ', $site->version, ' at ', $site->url('/'),
          ", all files in ", $site->folder, "\n\n";

    my $rows = attack($site);

    print "\n", DemoReport::table($rows), "\n";

    my @findings = show(DemoReport::findings($rows, $site));

    push @findings, show(campaign($site)), show(outage($site));

    my $rc = judge(@findings);

    return $rc if $once;

    print invitation($site);

    until ($signal) {
        sleep 1;
        $site->check;
    }

    print "\nstopping\n";
    return $rc;
}


sub attack {
    my ($site) = @_;

    my $traffic = DemoTraffic->new(
        port  => $site->port,
        kinds => \%DemoSenders::KINDS,
        look  => sub { die "stopped by SIG$signal\n" if $signal });

    my $phases = @DemoSenders::PHASES;

    foreach my $n (1 .. $phases) {
        my $phase = $DemoSenders::PHASES[$n - 1];

        print "$n/$phases  $phase->{title}, while honest users come ... ";
        printf "%.1f s\n", $traffic->play($phase);

        $site->check;
    }

    return $traffic->rows;
}


sub campaign {
    my ($site) = @_;
    my $contenders = DemoCampaign::CONTENDERS;
    my $units      = DemoCampaign::UNITS;
    my $code       = DemoCampaign::CODE;

    print <<"EOF";

Now a campaign: the code $code has $units units, and $contenders users want one,
of whom a tenth cheat.  Where the service fails, the unit is back at once.

EOF

    my $campaign = DemoCampaign->new(
        site => $site,
        look => sub { die "stopped by SIG$signal\n" if $signal });

    $campaign->play;
    print $campaign->table, <<'EOF';

  has one    told that it has redeemed it already
  another    told that another submission of its own is being redeemed
  unavail.   told that there is none
  failed     the service said 500

EOF

    return $campaign->findings;
}


sub outage {
    my ($site) = @_;
    my $rate = DemoSite::QUEUE_RATE;
    my $down = DemoOutage::DOWN;

    print <<"EOF";

Now Apple fails for $down seconds, in its own way: HTTP 200, and inside "not
available" (21005).  Purchases come all the while.  What Apple can't verify is
written to the disk, and its user told "accepted" (202, with a ticket).  When
Apple is back, the queue has it verified, slowly at first, then at $rate calls a
second, and tells your service of each result.

  waits   accepted, and not verified yet
  calls   of the queue to Apple, in this second
  told    to your service, that it can unlock a purchase, since the beginning

EOF

    my $outage = DemoOutage->new(
        site => $site, tell => sub { print @_ },
        look => sub { die "stopped by SIG$signal\n" if $signal });

    $outage->play;
    print "\n";

    return ($outage->findings, DemoReport::complaints($site));
}


sub show {
    my @findings = @_;

    foreach my $finding (@findings) {
        print $finding->[0] ? '  ok     ' : '  WRONG  ', $finding->[1], "\n";
    }

    return @findings;
}


sub judge {
    my @findings = @_;
    my @wrong = grep { !$_->[0] } @findings;

    print "\n", @wrong ? 'NOT what it should be: ' . @wrong . ' of '
                         . @findings . " findings are wrong\n"
                       : "all is what it should be\n";

    return @wrong ? 1 : 0;
}


sub invitation {
    my ($site) = @_;
    my $api    = $site->url('/iap_guard');
    my $redeem = $site->url('/v1/redeem');
    my $promo  = $site->url('/v1/campaign');
    my $code   = DemoCampaign::CODE;
    my $verify = $site->url('/v1/verify');
    my $apple  = $site->apple->url('/_control');
    my $bearer = "-H 'Authorization: Bearer " . $site->token . "'";
    my $banned = DemoSenders::ATTACKED_SEGMENT;

    my $tickets  = $site->url('/v1/tickets');
    my $receiver = $site->receiver->url('/_control');

    return <<"EOF";

It stays up until Ctrl-C.  Try, in another terminal:

  redeem; the fourth time in a minute `user` says no, and when to come back
    curl -i $redeem -H 'X-User-Id: ann' -H 'X-Device-Id: d1' -d '{"code":"SPRING"}'

  redeem from the banned segment
    curl -i $redeem -H 'X-User-Id: bob' -H 'X-Forwarded-For: $banned.99' -d '{}'

  look: state, metrics, bans
    curl $api/status
    curl $api/metrics
    curl $api/bans

  lift the ban
    curl -X DELETE $bearer '$api/bans?guard=redeem&layer=segment&key=$banned.0/24'

  the kill switch: off, and on again
    curl -X PUT $bearer $api/guards/redeem -d '{"mode":"off"}'
    curl -X PUT $bearer $api/guards/redeem -d '{"mode":"on"}'

  a promo code: sold out; ten more; one of them, and the same once more
    curl -i $promo -H 'X-User-Id: ann' -H 'X-Device-Id: d1' -d '{"code":"$code"}'
    curl -X PATCH $bearer $api/codes/$code -d '{"add":10}'
    curl -i $promo -H 'X-User-Id: ann' -H 'X-Device-Id: d1' -d '{"code":"$code"}'
    curl $api/codes/$code
    curl '$api/codes/$code/audit?count=3'

  verify a purchase; make Apple sick (json, 5xx, slow, html, hang, 429, ...), and
  it is accepted; ask for its ticket before and after Apple is well again
    curl -i $verify -H 'X-User-Id: ann' -d '{"receipt-data":"MIIT"}'
    curl -X PUT $apple -d '{"mode":"json","status":21005}'
    curl -i $verify -H 'X-User-Id: ann' -d '{"receipt-data":"MIIU"}'
    curl $tickets/TICKET
    curl -X PUT $apple -d '{"mode":"ok"}'

  what Apple was asked, and what your service was told
    curl $apple
    curl $receiver

  the breaker and the queue
    curl $api/breakers/apple
    curl $api/queues/receipts

  what nginx writes
    tail -f @{[ $site->file('access.log') ]}

EOF
}
