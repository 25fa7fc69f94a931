# The deny cache: what the store has refused is refused again without asking
# it, until the time that it said, and no longer than that holds.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';
use IapGuard::StoreTest;

my $redis = redis();


subtest 'ten thousand requests of one key' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=3 rate=1r/h;
                      empty_gif; }');

    my $before = scripts($redis);

    is_deeply flood($nginx, ('/t?u=a') x 10_000), { 200 => 3, 429 => 9_997 },
        'three pass';
    cmp_ok scripts($redis) - $before, '<=', 8, 'a handful of calls';

    my $all = $nginx->api_json('GET', 'guards/g');

    is $all->{requests}{limited}, 9_997, 'all are counted';
    is $all->{rejections}{user}, 9_997, 'and by their layer';
    is $all->{deny_cache_hits}, 9_996, 'all but one without asking';

    my $answer = $nginx->get('/t?u=a');

    is $answer->{headers}{'x-verdict'}, 'limited', 'the verdict';
    is $answer->{headers}{'x-store'}, 'redis', 'is the store\'s';
    like $answer->{headers}{'retry-after'}, qr/^(?:3600|35[89]\d)$/,
        'an hour is left';
    is $answer->{headers}{'ratelimit-policy'}, '"user";q=3;w=10800',
        'of that limit';
    like $answer->{body}, qr/^\{"error":"rate_limited","layer":"user",/,
        'in JSON';

    is statuses($nginx, '/t?u=b', 1), '200', 'another key is not denied';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'until the time is over' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=1 rate=2r/s;
                      empty_gif; }');

    is statuses($nginx, '/t?u=a', 3), '200 429 429', 'one token';
    is hits($nginx, 'g'), 1, 'the last is denied';
    sleep 0.55;
    is statuses($nginx, '/t?u=a', 2), '200 429', 'half a second later';
    sleep 0.55;

    # what is over stays over when another is denied

    is statuses($nginx, '/t?u=b', 3), '200 429 429', 'another key';
    is statuses($nginx, '/t?u=a', 1), '200', 'the first key';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'another limit, and it lapses' => sub {
    my %at = (
        user => sub { "iap_guard_user \$arg_u $_[0]; empty_gif;" },
        segment => sub { "iap_guard_user \$arg_u; iap_guard_segment $_[0]; "
                         . 'empty_gif;' },
        global => sub { "iap_guard_global $_[0]; empty_gif;" });

    my $conf = sub {
        my %limit = @_;
        return join "\n", map { "location /$_ { iap_guard $_; "
                                . $at{$_}->($limit{$_}) . ' }' } sort keys %at;
    };

    my $nginx = site($redis, 'timeout=5s', server => $conf->(
        user => 'capacity=1 rate=1r/h', segment => 'users=1 window=1h',
        global => 'rate=1r/h window=1h'));

    is statuses($nginx, '/user?u=a', 3), '200 429 429', 'user';
    is statuses($nginx, '/segment?u=a', 1), '200', 'segment';
    is statuses($nginx, '/segment?u=b', 2), '429 429', 'segment, a second user';
    is statuses($nginx, '/global', 3), '200 429 429', 'global';
    is hits($nginx, $_), 1, "$_ is denied" foreach sort keys %at;

    ok $nginx->change(server => $conf->(
        user => 'capacity=2 rate=1r/h', segment => 'users=2 window=1h',
        global => 'rate=2r/h window=1h')), 'one more of each';

    is statuses($nginx, '/user?u=a', 2), '200 429', 'user';
    is statuses($nginx, '/segment?u=b', 1), '200', 'segment';
    is statuses($nginx, '/segment?u=c', 1), '429', 'segment, a third user';
    is statuses($nginx, '/global', 2), '200 429', 'global';

    ok $nginx->change(server => $conf->(
        user => 'capacity=2 rate=2r/h', segment => 'users=2 window=2h',
        global => 'rate=2r/h window=2h')), 'another time';

    # the bucket is as empty as it was, but of shorter hours; the others begin
    # anew

    is $nginx->get('/user?u=a')->{headers}{'retry-after'}, 1800,
        'user: half an hour';
    is statuses($nginx, '/segment?u=c', 1), '200', 'segment';
    is statuses($nginx, '/global', 1), '200', 'global';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'another store, and it lapses' => sub {
    my $other = redis();
    my $conf  = sub { 'iap_guard_zone iap 1m; '
                      . "iap_guard_redis redis://$_[0] timeout=4s;" };
    my $nginx = site($redis, 'timeout=5s', server => '
        location /user { iap_guard u; iap_guard_user $arg_u
                         capacity=1 rate=1r/h; empty_gif; }
        location /segment { iap_guard s; iap_guard_user $arg_u;
                         iap_guard_segment users=1 window=1h; empty_gif; }
        location /global { iap_guard g; iap_guard_global rate=1r/h window=1h;
                         empty_gif; }');
    my $all = sub {
        my ($what, $first) = @_;
        my @paths = ('/user?u=a', '/segment?u=b', '/global');

        is statuses($nginx, '/segment?u=a', 1), '200', "$what: a member";
        is join(' ', map { statuses($nginx, $_, 2) } @paths),
           "$first 429 429 429 $first 429", $what;
    };

    $all->('one store', 200);
    ok $nginx->change(http => $conf->($redis->node . '/1')), 'another database';
    $all->('another database', 200);
    ok $nginx->change(http => $conf->($redis->node . '/1 prefix=x')), 'prefix=';
    $all->('another prefix', 200);
    ok $nginx->change(http => $conf->($other->node . '/1 prefix=x')), 'address';
    $all->('another server', 200);
    ok $nginx->change(http => $conf->($redis->node . '/0')), 'back';

    my $before = scripts($redis);
    $all->('what the first one has refused holds on', 429);
    cmp_ok scripts($redis) - $before, '<=', 2, 'and it need not be asked';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'a segment denies new users, not those it has' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t { iap_guard g; iap_guard_user $arg_u;
                      iap_guard_segment users=2 window=1h address=$arg_ip;
                      empty_gif; }');

    is statuses($nginx, '/t?u=a&ip=192.0.2.1', 1), '200', 'the first';
    is statuses($nginx, '/t?u=b&ip=192.0.2.1', 1), '200', 'the second';
    is statuses($nginx, '/t?u=c&ip=192.0.2.1', 3), '429 429 429', 'the third';
    is hits($nginx, 'g'), 2, 'twice without asking';
    is statuses($nginx, '/t?u=a&ip=192.0.2.1', 2), '200 200',
        'the first comes again';
    is statuses($nginx, '/t?u=c&ip=192.0.2.2', 1), '200',
        'the third, elsewhere';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'the window of a guard denies everybody in it, and nobody else' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /g { iap_guard g; iap_guard_user $arg_u;
                      iap_guard_global rate=1r/h window=1h; empty_gif; }
        location /h { iap_guard h; iap_guard_user $arg_u;
                      iap_guard_global rate=1r/h window=1h; empty_gif; }');

    is statuses($nginx, '/g?u=a', 2), '200 429', 'one of guard g';
    is verdicts($nginx, '/g?u=b', 1), 'limited:global', 'and no other';
    is hits($nginx, 'g'), 1, 'whom nobody was asked about';
    is statuses($nginx, '/h?u=a', 1), '200', 'guard h has its own';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'one layer is not another' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t { iap_guard g;
                      iap_guard_user $arg_u capacity=1 rate=1r/h;
                      iap_guard_device $arg_d capacity=1 rate=1r/h;
                      empty_gif; }
        location /h { iap_guard h;
                      iap_guard_user $arg_u capacity=1 rate=1r/h;
                      empty_gif; }');

    is statuses($nginx, '/t?u=a&d=1', 2), '200 429', 'user a';
    is statuses($nginx, '/t?u=b&d=a', 1), '200', 'device a is not';
    is statuses($nginx, '/h?u=a', 1), '200', 'nor user a of another guard';
    is verdicts($nginx, '/t?u=c&d=a', 2), 'limited:device limited:device',
        'device a, now';
    is verdicts($nginx, '/t?u=a&d=a', 1), 'limited:user',
        'of two, the first layer';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'a layer in dry run denies nobody; a guard in dry run counts' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /layer { iap_guard g;
                      iap_guard_user $arg_u capacity=1 rate=1r/h dry_run=on;
                      empty_gif; }
        location /guard { iap_guard h dry_run=on;
                      iap_guard_user $arg_u capacity=1 rate=1r/h;
                      empty_gif; }');

    is verdicts($nginx, '/layer?u=a', 3),
        'passed limited_dry_run:user limited_dry_run:user', 'a layer';
    is hits($nginx, 'g'), 0, 'has asked each time';

    is verdicts($nginx, '/guard?u=a', 3),
        'passed limited_dry_run:user limited_dry_run:user', 'a guard';
    is statuses($nginx, '/guard?u=a', 1), '200', 'refuses nothing';
    is hits($nginx, 'h'), 2, 'and need not ask';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


# where another layer refuses, with and without asking: as the zone counts

sub dry_runs {
    my ($store, $guard, $ask) = @_;
    my @made = (IapGuard::Nginx->options, workers => 1);

    my $nginx = IapGuard::Nginx->new(@made,
        http => "iap_guard_zone iap 1m; $store",
        server => "location /t { iap_guard g; $guard empty_gif; }")->start;

    $ask->(sub { $nginx->get("/t?u=$_") foreach @_ });

    my $counted = $nginx->api_json('GET', 'guards/g');
    my $hits = hits($nginx, 'g');

    ends_well($nginx);

    return $counted->{dry_run_rejections}, $counted->{requests}, $hits;
}

sub as_the_zone {
    my ($what, $hits, $wanted, @how) = @_;

    my ($zone, $requests) = dry_runs('', @how);
    my ($store, $same, $denied) = dry_runs(
        'iap_guard_redis redis://' . $redis->node . ' timeout=5s;', @how);

    is_deeply { map { $_ => $zone->{$_} } keys %$wanted }, $wanted,
        "$what: the zone";
    is_deeply $store, $zone, "$what: the store";
    is_deeply $same, $requests, "$what: requests";
    is $denied, $hits, "$what: that many without asking";

    $redis->cli('FLUSHALL');
    return;
}

subtest 'layers in dry run count what a layer behind them denies' => sub {
    as_the_zone('two layers', 9, { segment => 7, user => 13 }, '
        iap_guard_segment users=1 window=1h dry_run=on;
        iap_guard_user $arg_u capacity=1 rate=1r/h dry_run=on;
        iap_guard_bucket all $host capacity=5 rate=1r/h;',
        sub { $_[0]->(('a', 'b') x 7, 'a') });

    as_the_zone('for as long as they would refuse', 5, { user => 4 }, '
        iap_guard_user $arg_u capacity=1 rate=30r/m dry_run=on;
        iap_guard_bucket all $host capacity=2 rate=1r/h;',
        sub { my ($get) = @_; $get->(('a') x 5); sleep 2.1;
              $get->(('a') x 3) });

    as_the_zone('and none that comes behind it', 3, { device => 0 }, '
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        iap_guard_device $arg_u capacity=1 rate=1r/h dry_run=on;',
        sub { $_[0]->(('a') x 5) });
};


subtest 'a table that is full: the store is asked, and nobody let by' => sub {
    my $nginx = site($redis, 'timeout=5s', zone => '64k', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=1 rate=1r/h;
                      empty_gif; }');

    my @twice = map { (["/t?u=$_"], ["/t?u=$_"]) } 1 .. 600;
    my %seen;

    $seen{$_->{status} // $_->{error}}++ foreach $nginx->ask(@twice);
    is_deeply \%seen, { 200 => 600, 429 => 600 }, 'one token for each';

    my $all = $nginx->api_json('GET', 'guards/g');

    cmp_ok $all->{zone_full}{denied}, '>', 0, 'some found no room';
    is $all->{zone_full}{buckets}, 0, 'the buckets are not touched';

    %seen = ();
    $seen{$_->{status} // $_->{error}}++ foreach $nginx->ask(map { ["/t?u=$_"] } 1 .. 600);
    is_deeply \%seen, { 429 => 600 }, 'all are refused still';

    my $hits = hits($nginx, 'g');
    cmp_ok $hits, '>', 50, 'many without asking';
    cmp_ok $hits, '<', 600, 'not all';

    is join('', $nginx->log_lines(qr/is full/)), '', 'which is not worth a line';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


done_testing;
