# A store that is not there, hangs, answers nonsense, or cannot count in one of
# the keys: each layer follows its on_error, and nothing is charged for a
# request that is refused after all.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use IapGuard::FakeRedis;
use IapGuard::StoreTest;

my $redis = redis();
my $NONE  = '$-1';


sub fallbacks {
    my ($nginx) = @_;
    return $nginx->api_json('GET', 'guards/g')->{fallbacks};
}


# Nobody waits until something is given back.

sub soon {
    my ($name, $expected, @command) = @_;
    my $got;

    ok(IapGuard::Nginx->wait_for(5, sub { $got = $redis->cli(@command);
                                          $got =~ /$expected/ }), $name)
        or diag "got $got";

    return;
}


subtest 'it is not there, comes, goes, and comes back' => sub {
    my $own = redis();
    $own->stop;

    my $nginx = site($own, 'timeout=500ms', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }');

    is verdict($nginx, '/t?u=a'), 'passed//fallback', 'the zone decides';
    is statuses($nginx, '/t?u=a', 2), '200 429', 'by the same limit';
    is fallbacks($nginx), 3, 'three without the store';

    statuses($nginx, '/t?u=x', 5);
    ok down($nginx, 1), 'it is down';

    my $before = time;
    is verdict($nginx, '/t?u=b'), 'passed//fallback', 'another';
    cmp_ok time - $before, '<', 0.3, 'does not wait for it';
    ok !$nginx->api_json('GET', 'status')->{store}{up}, 'status';
    is scalar(my @said = $nginx->log_lines(qr/\[error\].* is down/)), 1,
        'which is said once';

    $own->start;
    ok down($nginx, 0), 'it is up';
    is verdict($nginx, '/t?u=b'), 'passed//redis', 'the store decides';
    is statuses($nginx, '/t?u=b', 2), '200 429',
        'and knows nothing of what the zone has counted';

    # what it has refused stays refused without it

    $own->kill;
    is verdict($nginx, '/t?u=b'), 'limited/user/redis', 'still denied';
    is verdict($nginx, '/t?u=c'), 'passed//fallback', 'another is not';

    # too short a time for it to be called down

    my $n = 0;
    $own->start;
    ok(IapGuard::Nginx->wait_for(10, sub {
        $n++;
        return verdict($nginx, "/t?u=d$n") eq 'passed//redis' }),
        'until it is there again');

    ends_well($nginx);
};


subtest 'on_error, and the order of layers' => sub {
    my $own = redis();
    $own->stop;

    my $nginx = site($own, 'timeout=200ms', server => '
        location /local { iap_guard g;
            iap_guard_user $arg_u capacity=1 rate=1r/h; empty_gif; }
        location /pass { iap_guard p;
            iap_guard_user $arg_u capacity=1 rate=1r/h on_error=pass;
            iap_guard_global rate=1r/h window=1h on_error=pass; empty_gif; }
        location /reject { iap_guard r;
            iap_guard_user $arg_u capacity=1 rate=1r/h on_error=reject;
            empty_gif; }
        location /global { iap_guard gl;
            iap_guard_user $arg_u capacity=1 rate=1r/h;
            iap_guard_global rate=9r/s on_error=reject; empty_gif; }
        location /segment { iap_guard s; iap_guard_user $arg_u;
            iap_guard_segment users=1 window=1h; empty_gif; }
        location /window { iap_guard w; iap_guard_user $arg_u;
            iap_guard_global rate=2r/h window=1h; empty_gif; }
        location /dry { iap_guard d;
            iap_guard_user $arg_u capacity=1 rate=1r/h on_error=reject
                           dry_run=on; empty_gif; }
        location /dry_local { iap_guard dl;
            iap_guard_user $arg_u capacity=1 rate=1r/h dry_run=on; empty_gif; }
        location /guard { iap_guard dg dry_run=on;
            iap_guard_user $arg_u capacity=1 rate=1r/h on_error=reject;
            empty_gif; }
        location /own { iap_guard o;
            iap_guard_user $arg_u capacity=1 rate=1r/h on_error=reject;
            iap_guard_answer unavailable 500 mine text/plain; empty_gif; }
        location /page { iap_guard pg;
            iap_guard_user $arg_u capacity=1 rate=1r/h on_error=reject;
            error_page 503 = /fine; }
        location = /fine { return 200 fine; }');

    is verdicts($nginx, '/local?u=a', 2), 'passed limited:user', 'local';
    is verdicts($nginx, '/segment?u=a', 2), 'passed passed', 'a segment';
    is verdicts($nginx, '/segment?u=b', 1), 'limited:segment',
        'and a second user';
    is verdicts($nginx, '/window?u=a', 3), 'passed passed limited:global',
        'a window';
    is verdicts($nginx, '/pass?u=a', 3), 'passed passed passed', 'pass';

    my $answer = $nginx->get('/reject?u=a');

    is $answer->{status}, 503, 'reject';
    is $answer->{headers}{'x-verdict'}, 'unavailable', 'its verdict';
    is $answer->{headers}{'x-store'}, 'fallback', 'is not the store\'s';
    like $answer->{headers}{'retry-after'}, qr/^[1-5]$/, 'come back soon';
    like $answer->{body}, qr/^\{"error":"unavailable","layer":"user",/, 'JSON';
    ok !defined $answer->{headers}{ratelimit}, 'no limit is named';

    # an earlier layer that would refuse by itself is not asked

    is verdicts($nginx, '/global?u=a', 2), 'unavailable:global '
        . 'unavailable:global', 'a later layer rejects';

    is verdicts($nginx, '/dry?u=a', 2), 'unavailable_dry_run:user '
        . 'unavailable_dry_run:user', 'a layer in dry run';
    is verdicts($nginx, '/dry_local?u=a', 2), 'passed limited_dry_run:user',
        'one that the zone decides';
    is verdicts($nginx, '/guard?u=a', 1), 'unavailable_dry_run:user',
        'a guard in dry run';
    is $nginx->get('/own?u=a')->{body}, 'mine', 'iap_guard_answer';
    is $nginx->get('/page?u=a')->{body}, 'fine', 'error_page';

    is $nginx->api_json('GET', 'guards/r')->{rejections}{user}, 1, 'counted';
    is $nginx->api_json('GET', 'guards/d')->{dry_run_rejections}{user}, 2,
        'counted in dry run';
    is $nginx->api_json('GET', 'guards/p')->{fallbacks}, 3,
        'once for each request, not for each layer';
    cmp_ok $nginx->metrics->{'iap_guard_store_commands_total'
                             . '{result="closed"}'}, '>', 0, 'no connection';

    ends_well($nginx);
};


subtest 'a share of each limit, with nodes=' => sub {
    my $own = redis();
    $own->stop;

    my $nginx = site($own, 'timeout=200ms nodes=3', http => '
        map $arg_n $users { default $arg_n; "" none; }', server => '
        location /user { iap_guard g;
            iap_guard_user $arg_u capacity=10 rate=1r/h; empty_gif; }
        location /one { iap_guard o;
            iap_guard_user $arg_u capacity=2 rate=1r/h; empty_gif; }
        location /rate { iap_guard r;
            iap_guard_user $arg_u capacity=3 rate=3r/s; empty_gif; }
        location /window { iap_guard w; iap_guard_user $arg_u;
            iap_guard_global rate=7r/h window=1h; empty_gif; }
        location /segment { iap_guard s; iap_guard_user $arg_u;
            iap_guard_segment users=7 window=1h address=$arg_ip; empty_gif; }
        location /variable { iap_guard v; iap_guard_user $arg_u;
            iap_guard_segment users=$users window=1h address=$arg_ip;
            empty_gif; }');

    is statuses($nginx, '/user?u=a', 4), '200 200 200 429', '3 of 10';
    is statuses($nginx, '/one?u=a', 2), '200 429', '1 of 2';
    is statuses($nginx, '/window?u=a', 3), '200 200 429', '2 of 7';

    my $users = sub {
        my ($path, $n) = @_;
        return join ' ', map { statuses($nginx, "$path&u=$_", 1) } 1 .. $n;
    };

    is $users->('/segment?ip=192.0.2.1', 3), '200 200 429', '2 of 7 users';
    is $users->('/variable?ip=192.0.2.1&n=9', 4), '200 200 200 429',
        '3 of 9, of a variable';
    is $users->('/variable?ip=192.0.2.2&n=1', 2), '200 429', '1 of 1';
    is $users->('/variable?ip=192.0.2.3', 4), '200 200 200 429',
        '3 of 10, the default';

    # 3 a second are one for each machine

    my $answer = $nginx->get('/user?u=a');
    is $answer->{headers}{'ratelimit-policy'}, '"user";q=3;w=32400',
        'that is what is told';
    is $answer->{headers}{'retry-after'}, 10800, 'three hours for a token';

    is statuses($nginx, '/rate?u=a', 2), '200 429', 'at 3 a second';
    sleep 0.4;
    is statuses($nginx, '/rate?u=a', 1), '429', 'nothing yet';
    sleep 0.7;
    is statuses($nginx, '/rate?u=a', 2), '200 429', 'one a second';

    $own->start;
    ok down($nginx, 0), 'it is up';
    is statuses($nginx, '/user?u=a', 11), '200 ' x 10 . '429',
        'all of it, from the store';

    ends_well($nginx);
};


subtest 'a share of the users refuses, but bans nobody' => sub {
    my $own = redis();

    my $nginx = site($own, 'timeout=200ms nodes=10', server => '
        location /ten { iap_guard t; iap_guard_user $arg_u;
            iap_guard_segment users=10 window=1h ban=1h address=$arg_ip;
            empty_gif; }
        location /one { iap_guard o; iap_guard_user $arg_u;
            iap_guard_segment users=1 window=1h ban=1h address=$arg_ip;
            empty_gif; }
        location /dry { iap_guard d; iap_guard_user $arg_u;
            iap_guard_segment ipv4=24 users=10 window=1h ban=1h dry_run=on
                              address=$arg_ip;
            iap_guard_segment users=1 window=1h ban=1h address=$arg_ip;
            empty_gif; }');

    $own->stop;

    # who is one too many for a tenth is not so for all machines together

    is verdicts($nginx, "/ten?ip=192.0.2.1&u=$_", 1),
        $_ == 1 ? 'passed' : 'limited:segment', "user $_" foreach 1 .. 3;
    is $nginx->api('GET', 'bans') =~ /192\.0\.2\.1/ ? 1 : 0, 0, 'no ban';
    is verdicts($nginx, '/ten?ip=192.0.2.1&u=1', 1), 'passed',
        'and who passed passes';

    # two of one machine are more than one of all

    is verdicts($nginx, "/one?ip=192.0.2.2&u=$_", 1),
        $_ == 1 ? 'passed' : 'limited:segment', "of one: user $_"
        foreach 1 .. 2;
    is verdicts($nginx, '/one?ip=192.0.2.2&u=1', 1), 'banned:ban',
        'a limit that is not divided bans';

    is verdicts($nginx, "/dry?ip=192.0.2.3&u=$_", 1),
        $_ == 1 ? 'passed' : 'limited:segment', "behind another: user $_"
        foreach 1 .. 2;
    is verdicts($nginx, '/dry?ip=192.0.2.3&u=1', 1), 'banned:ban',
        'it is asked of each layer for itself';

    $own->start;
    ok down($nginx, 0), 'it is up' if !$nginx->metrics->{iap_guard_store_up};
    ok(IapGuard::Nginx->wait_for(5, sub {
        verdict($nginx, '/ten?ip=192.0.2.4&u=1') eq 'passed//redis' }),
        'it decides');
    is verdicts($nginx, "/ten?ip=192.0.2.4&u=$_", 1), 'passed', "user $_"
        foreach 2 .. 10;
    is verdicts($nginx, '/ten?ip=192.0.2.4&u=11', 2),
        'limited:segment banned:ban', 'the whole limit bans';

    ends_well($nginx);
};


subtest 'a key of another type: its layer alone is broken' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /local { iap_guard g;
            iap_guard_user $arg_u capacity=1 rate=1r/h;
            iap_guard_device $arg_d capacity=1 rate=1r/h;
            iap_guard_global rate=10r/h window=1h; empty_gif; }
        location /pass { iap_guard p;
            iap_guard_user $arg_u capacity=1 rate=1r/h on_error=pass;
            iap_guard_device $arg_d capacity=1 rate=1r/h;
            empty_gif; }
        location /reject { iap_guard r;
            iap_guard_user $arg_u capacity=1 rate=1r/h on_error=reject;
            iap_guard_device $arg_d capacity=2 rate=1r/h;
            iap_guard_global rate=10r/h window=1h; empty_gif; }
        location /after { iap_guard a;
            iap_guard_user $arg_u capacity=2 rate=1r/h;
            iap_guard_device $arg_d capacity=1 rate=1r/h on_error=reject;
            empty_gif; }
        location /behind { iap_guard b;
            iap_guard_user $arg_u capacity=1 rate=1r/h on_error=reject;
            iap_guard_device $arg_d capacity=1 rate=1r/h dry_run=on;
            empty_gif; }
        location /segment { iap_guard s; iap_guard_user $arg_u;
            iap_guard_segment users=1 window=1h;
            iap_guard_global rate=10r/h window=1h; empty_gif; }');

    $redis->cli('SADD', "iap:$_:user:bad", 'x') foreach qw(g p r a b);
    $redis->cli('SET', 'iap:s:segment/32/12000000000:127.0.0.1/32', 'x');

    is verdict($nginx, '/local?u=bad&d=1'), 'passed//fallback', 'local';
    is verdict($nginx, '/local?u=bad&d=1'), 'limited/device/fallback',
        'what the store decides holds';
    is verdict($nginx, '/local?u=bad&d=2'), 'limited/user/fallback',
        'what the zone decides, too';
    soon('and the device has its token back', '^0$',
         'EXISTS', 'iap:g:device:2');
    soon('and the window its place', ' 1$',
         'GET', 'iap:g:global/72000000000:all');
    is verdict($nginx, '/local?u=good&d=3'), 'passed//redis',
        'other keys are not touched';

    is verdict($nginx, '/pass?u=bad&d=1'), 'passed//fallback', 'pass';
    is verdict($nginx, '/pass?u=bad&d=2'), 'passed//fallback', 'and pass';
    is verdict($nginx, '/pass?u=bad&d=2'), 'limited/device/fallback',
        'but not the device';
    is verdict($nginx, '/pass?u=bad&d=2'), 'limited/device/redis',
        'which is denied from then on';

    is verdict($nginx, '/reject?u=bad&d=1'), 'unavailable/user/fallback',
        'reject';
    soon('and the device has its token back', '^0$',
         'EXISTS', 'iap:r:device:1');
    soon('and the window its place', ' 0$',
         'GET', 'iap:r:global/72000000000:all');

    # the first in order that refuses is named

    is verdict($nginx, '/after?u=good&d=1'), 'passed//redis', 'one that passes';
    is verdict($nginx, '/after?u=bad&d=1'), 'limited/device/fallback',
        'a refusal behind a broken layer';
    $redis->cli('SADD', 'iap:a:device:bad', 'x');
    is verdict($nginx, '/after?u=bad&d=bad'), 'unavailable/device/fallback',
        'reject behind local';
    is verdict($nginx, '/after?u=bad&d=3'), 'passed//fallback',
        'the zone has charged the user for neither';

    is verdict($nginx, '/behind?u=good&d=1'), 'passed//redis', 'a device';
    is verdict($nginx, '/behind?u=bad&d=1'), 'unavailable/user/fallback',
        'that would refuse behind what does';
    is $nginx->api_json('GET', 'guards/b')->{dry_run_rejections}{device}, 0,
        'has not been looked at';

    is verdict($nginx, '/segment?u=a'), 'passed//fallback', 'a segment';
    is verdict($nginx, '/segment?u=b'), 'limited/segment/fallback',
        'that the zone counts';
    soon('and the window has its place back', ' 1$',
         'GET', 'iap:s:global/72000000000:all');

    ok $nginx->metrics->{iap_guard_store_up}, 'the store is up';
    is scalar(my @said = $nginx->log_lines(qr/\[error\].* can't count in /)), 1,
        'which is said once';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


# Where the reply begins with no more than "ERR", the log says what that is about.

subtest 'what makes it down is said' => sub {
    my %errors = (
        "ERR unknown command 'EVALSHA', with args beginning with: 's3cret'" =>
            'it knows no scripts; is it a sentinel?',
        'ERR unknown command `EVALSHA`, with args beginning with: `s3cret`' =>
            'it knows no scripts; is it a sentinel?',
        'ERR max number of clients reached' => 'it has too many clients',
        'ERR the clock is not between 2025 and 2039' =>
            'its clock is not between 2025 and 2039',
        'ERR s3cret' => 'ERR',
        'ERR' => 'ERR',
        'NOAUTH Authentication required.' => 'NOAUTH',
    );

    foreach my $error (sort keys %errors) {
        my $fake = IapGuard::FakeRedis->new(port => 0)->start;
        $fake->behave('*', raw => "-$error\r\n");

        my $nginx = site($redis, "redis://127.0.0.1:$fake->{port} timeout=5s",
            server => '
            location /t { iap_guard g; iap_guard_user $arg_u; iap_guard_device
                          $arg_u capacity=2 rate=1r/h; empty_gif; }');

        statuses($nginx, '/t?u=a', 6);
        is scalar(my @said = $nginx->log_lines(
                      qr/\[error\].* is down: \Q$errors{$error}\E; /)), 1,
            $error or diag $nginx->log_lines(qr/down/);
        is join('', $nginx->log_lines(qr/s3cret/)), '', '... and no more';

        ends_well($nginx);
        $fake->stop;
    }
};


subtest 'a right that is missing' => sub {
    my $own = redis();
    $own->cli('ACL', 'SETUSER', 'guard', 'on', '>word', '~*', '+@all',
              '-incrby', '-zadd', '-set');

    my $nginx = site($own, 'redis://guard:word@' . $own->node . ' timeout=5s',
        server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }');

    is verdict($nginx, '/t?u=a'), 'passed//fallback', 'the zone decides';
    like join('', $nginx->log_lines(qr/can't count in/)),
        qr/can't count in "iap:g:user:\.\.\.": NOPERM;/, 'the log says why';

    ends_well($nginx);
};


subtest 'it hangs: no request waits longer than timeout=' => sub {
    my $nginx = site($redis, 'timeout=300ms', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }
        location /reject { iap_guard r; iap_guard_user $arg_u capacity=2
                      rate=1r/h on_error=reject; empty_gif; }');

    is verdict($nginx, '/t?u=a'), 'passed//redis', 'it answers';

    $redis->freeze;

    my $answer = $nginx->get('/t?u=a');
    is $answer->{headers}{'x-store'}, 'fallback', 'it does not';
    cmp_ok $answer->{seconds}, '>', 0.25, 'waited';
    cmp_ok $answer->{seconds}, '<', 2, 'not for ever';

    # all at once, and no more than one time-out for all of them

    my $before = time;
    my %seen;
    $seen{$_->{headers}{'x-verdict'}}++
        foreach $nginx->ask(map { ["/reject?u=$_"] } 1 .. 32);
    is_deeply \%seen, { unavailable => 32 }, 'many are rejected';
    cmp_ok time - $before, '<', 2, 'together';

    ok down($nginx, 1), 'it is down';
    $before = time;
    is statuses($nginx, '/reject?u=a', 20), '503 ' x 19 . '503', 'at once';
    cmp_ok time - $before, '<', 2, 'without waiting';
    cmp_ok $nginx->metrics->{'iap_guard_store_commands_total'
                             . '{result="timeout"}'}, '>', 0, 'counted';

    $redis->thaw;
    ok down($nginx, 0), 'it is up';
    is verdict($nginx, '/t?u=b'), 'passed//redis', 'and asked';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


# which is not worth an error: the store goes on being asked

subtest 'users of a segment that can not be remembered' => sub {
    my $fake = IapGuard::FakeRedis->new(port => 0)->start;
    my $long = text('x' x 256);

    my $nginx = site($redis, "redis://127.0.0.1:$fake->{port} timeout=5s",
        server => '
        location /t { iap_guard g; iap_guard_user $arg_u;
                      iap_guard_segment users=2 window=1h; empty_gif; }
        location /u { iap_guard u; iap_guard_user $arg_u capacity=1 rate=1r/h;
                      empty_gif; }');

    my %users = (
        'numbers'              => [text('a'), ':5'],
        'nothing'              => [text('a'), $NONE],
        'users of users'       => [text('a'), [text('b')]],
        'one that is too long' => [text('a'), $long],
        'too many'             => [(text('a')) x 257],
        'fewer than its limit' => [text('a')],
        'none at all'          => [],
    );

    my $n = 0;

    foreach my $what (sort keys %users) {
        $fake->behave('*', raw => answer(':1', text('R'), ':1',
                                         ':36000000000', text(''),
                                         $users{$what}));
        is verdict($nginx, '/t?u=r' . ++$n), 'limited/segment/redis', $what;
        is verdict($nginx, '/u?u=r' . $n), 'limited/user/redis',
            '... of a bucket';
        $fake->behave('*', raw => answer(':1', text('A')));
        is verdict($nginx, '/t?u=new'), 'passed//redis', 'others are not denied';
        is verdict($nginx, '/u?u=new'), 'passed//redis', 'of neither';
        is verdict($nginx, "/t?u=r$n"), 'limited/segment/redis',
            'but who was refused';
    }

    $fake->behave('*', raw => answer(':1', text('R'), ':1', ':36000000000',
                                     text(''), [text('a'), text('b')]));
    is verdict($nginx, '/t?u=last'), 'limited/segment/redis', 'two users';
    $fake->behave('*', raw => answer(':1', text('A')));
    is verdict($nginx, '/t?u=new'), 'limited/segment/redis', 'are all';
    is verdict($nginx, "/t?u=$_"), 'passed//redis', "and user $_ is one"
        foreach qw(a b);

    ends_well($nginx);
    $fake->stop;
};


subtest 'it answers nonsense' => sub {
    my %nonsense = (
        'a status'             => "+OK\r\n",
        'a number'             => ":7\r\n",
        'nothing'              => "\$-1\r\n",
        'an error'             => "-ERR no\r\n",
        'a short array'        => "*1\r\n:1\r\n",
        'no moment'            => answer("\$1\r\n1", text('A')),
        'a moment before'      => answer(':-1', text('A')),
        'a number of letters'  => answer(':1', ':1'),
        'letters of no length' => answer(':1', text('')),
        'too many letters'     => answer(':1', text('AA')),
        'a letter unknown'     => answer(':1', text('Z')),
        'one element more'     => answer(':1', text('A'), ':1'),
        'two elements more'    => answer(':1', text('A'), ':1', ':0'),
        'three elements more'  => answer(':1', text('R'), ':1', ':5', text('')),
        'a negative wait'      => answer(':1', text('R'), ':1', ':-5', text(''),
                                         $NONE),
        'a wait that is none'  => answer(':1', text('R'), ':1', text('5'),
                                         text(''), $NONE),
        'an error that is none' => answer(':1', text('E'), ':1', ':0', ':0',
                                          $NONE),
        'users that are none'  => answer(':1', text('R'), ':1', ':5', text(''),
                                         text('x')),
        'of no decision'       => answer(':1', text('R'), ':0', ':5', text(''),
                                         $NONE),
        'of one too many'      => answer(':1', text('R'), ':2', ':5', text(''),
                                         $NONE),
        'of one twice'         => answer(':1', text('R'),
                                         (':1', ':5', text(''), $NONE) x 2),
    );

    my $fake = IapGuard::FakeRedis->new(port => 0)->start;

    my $nginx = site($redis, "redis://127.0.0.1:$fake->{port} timeout=5s",
        server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h
                      on_error=reject; empty_gif; }');

    # what makes sense comes in between, or it would soon be down, and not be
    # asked any more

    my $admits = answer(':1', text('A'));

    foreach my $what (sort keys %nonsense) {
        $fake->behave('*', raw => $nonsense{$what});
        is verdict($nginx, "/t?u=a"), 'unavailable/user/fallback', $what;

        $fake->behave('*', raw => $admits);
        is verdict($nginx, "/t?u=a"), 'passed//redis', '... and then sense';
    }

    # a refusal without a wait, or with one that no limit could mean

    my $refusal = sub {
        return answer(':1', text('R'), ':1', ":$_[0]", text(''), $NONE);
    };

    foreach my $said ($refusal->(0), answer(':1', text('R'))) {
        $fake->behave('*', raw => $said);
        is verdict($nginx, '/t?u=b'), 'limited/user/redis', 'no wait';
        is $nginx->get('/t?u=b')->{headers}{'retry-after'}, 1, 'is a second';
    }

    $fake->behave('*', raw => $admits);
    is verdict($nginx, '/t?u=b'), 'passed//redis', 'and nothing is denied';

    $fake->behave('*', raw => $refusal->('9000000000000000'));
    is verdict($nginx, '/t?u=c'), 'limited/user/redis', 'fourteen years';
    $fake->behave('*', raw => $admits);
    is $nginx->get('/t?u=c')->{headers}{'retry-after'}, 7200,
        'are denied for as long as the bucket takes';

    ends_well($nginx);
    $fake->stop;
};


# an array, and a text in it, as the protocol has them

sub answer {
    return '*' . @_ . "\r\n"
           . join('', map { ref $_ ? answer(@$_) : "$_\r\n" } @_);
}

sub text   { return '$' . length($_[0]) . "\r\n$_[0]" }


done_testing;
