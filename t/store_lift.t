# A ban is lifted where there is a store: what its segment has counted there
# is forgotten before the answer comes, or the answer says that it is not.  And
# what is made or lifted stands in the log of bans by then, or the answer says
# that it does not.

use strict;
use warnings;

use IO::Socket::INET;
use JSON::PP ();
use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';
use IapGuard::FakeRedis;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::RedisProxy;
use IapGuard::StoreTest;

use constant {
    USERS   => 20,          # of a segment
    WORKERS => 3,
    WITHIN  => 2,           # s: what one machine lifts is lifted elsewhere
    PREFIX  => '10.0.0.0/24',
    LIFT    => 'bans?guard=g&layer=segment&key=10.0.0.0/24',
};

my $server = '
    add_header X-Worker $pid always;
    access_log access.log lift;
    location /t { iap_guard g; iap_guard_user $arg_u;
                  iap_guard_segment ipv4=24 users=' . USERS . ' window=1h
                                    ban=1h address=$arg_ip;
                  empty_gif; }
    location /bucket { iap_guard g; iap_guard_user $arg_u; empty_gif; }';

my $users = 0;


# one machine; the store is behind a proxy, unless there is none

sub machine {
    my ($redis, $words, %options) = @_;

    return site($redis, $words, server => $server, workers => WORKERS,
                http => "log_format lift '\$request_method \$status';\n",
                %options);
}


# what somebody who was never there before is told: "200", "429 segment"

sub newcomer {
    my ($nginx, %options) = @_;
    my $ip = $options{ip} || '10.0.0.9';

    return told($nginx->get("/t?u=n" . ++$users . "&ip=$ip"));
}

sub told {
    my ($answer) = @_;

    return $answer->{error} if $answer->{error};
    return $answer->{status} if $answer->{status} == 200;
    return $answer->{status} . ' ' . ($answer->{body} =~ /"layer":"(\w+)"/)[0];
}


# fills the segment, up to the last user that it has room for

sub fill {
    my ($nginx, $ip) = @_;

    my %seen;
    $seen{ told($_) }++
        foreach $nginx->ask(map { ['/t?u=n' . ++$users . '&ip='
                                   . ($ip || '10.0.0.9')] } 1 .. USERS);

    is_deeply \%seen, { 200 => USERS }, 'the segment is full';

    return;
}


# as many as it has room for come at once, to whichever worker

sub crowd {
    my ($nginx) = @_;

    return join ' ', map { newcomer($nginx) } 1 .. USERS;
}

sub all_pass { return join ' ', (200) x USERS }


sub ban_it {
    my ($nginx) = @_;

    fill($nginx);
    is newcomer($nginx), '429 segment', 'one more is refused';
    is newcomer($nginx), '429 ban', 'and all are banned';

    return;
}


sub bans {
    my ($nginx) = @_;

    return join ' ', sort map { $_->{key} } @{ $nginx->api_json('GET', 'bans') };
}


# DELETE without waiting for the answer: what to run, and to ask

sub lifting {
    my ($nginx, $path) = @_;
    return calling($nginx, 'DELETE', $path || LIFT);
}

sub banning {
    my ($nginx, $user) = @_;
    return calling($nginx, 'POST', 'bans', '{"guard":"g","layer":"user","key":"'
                                           . $user . '","seconds":600}');
}

sub calling {
    my ($nginx, $method, $path, $body) = @_;
    my $loop = IapGuard::Loop->new;
    my $self = { loop => $loop, begun => IapGuard::Loop::now() };

    $self->{client} = IapGuard::LoadClient->new(
        loop => $loop, port => $nginx->port, connections => 1, timeout => 30);

    $self->{client}->request(
        { method => $method, path => "/iap_guard/$path", body => $body,
          headers => { Authorization => 'Bearer ' . $nginx->token } },
        sub { $self->{answer} = shift;
              $self->{seconds} = IapGuard::Loop::now() - $self->{begun} });

    run_for($self, 0.02);

    return $self;
}

sub run_for {
    my ($self, $seconds) = @_;
    my $done = 0;

    $self->{loop}->after($seconds, sub { $done = 1 });
    $self->{loop}->run_until(sub { $done || $self->{answer} });

    return;
}


# "200 {...}"

sub answer_of {
    my ($self) = @_;

    run_for($self, 10) if !$self->{answer};

    my $answer = $self->{answer} or return 'none';

    return $answer->{error} if $answer->{error};
    return "$answer->{status} " . $answer->{body} =~ s/\n\z//r;
}

sub lift { return answer_of(lifting(@_)) }

sub waits_for { return IapGuard::Nginx->wait_for(@_) }


subtest 'the answer waits for the store, and bans hold until then' => sub {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $nginx = machine($redis, $proxy->node . ' timeout=5s');

    ban_it($nginx);

    $proxy->hold('forget');
    my $lifting = lifting($nginx);

    ok waits_for(5, sub { $proxy->held('forget') == 1 }), 'the store is asked';
    run_for($lifting, 0.5);
    ok !$lifting->{answer}, 'no answer';
    is newcomer($nginx), '429 ban', 'still banned';
    is bans($nginx), PREFIX, 'and in the list';

    $proxy->release;
    is answer_of($lifting), '200 {"lifted":1}', 'it answers';
    is crowd($nginx), all_pass(), 'and all who come pass, whatever worker';
    is bans($nginx), '', 'nobody is banned';
    is $nginx->log_lines(qr/lifts the ban of .*, client: 127\.0\.0\.1,/), 1,
        'it is logged, and who asked';

    # nothing of it is left in the store but the crowd

    is $redis->command('ZCARD', grep { /segment/ } split / /, keys_of($redis)),
        USERS, 'what was counted is forgotten';

    ends_well($nginx);
};


subtest 'who was refused before, and told after' => sub {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $nginx = machine($redis, $proxy->node . ' timeout=5s');

    fill($nginx);

    # two connections, to two workers

    my ($one, $two) = connections($nginx);

    $proxy->keep('decide');
    send_on($one, $nginx, 'GET', '/t?u=late&ip=10.0.0.9');
    ok waits_for(5, sub { $proxy->held('decide') == 1 }), 'one is refused';
    sleep 0.1;

    send_on($two, $nginx, 'DELETE', '/iap_guard/' . LIFT);
    is read_on($two), '200 {"lifted":0}', 'a lift comes in between';

    $proxy->release;
    is read_on($one) =~ s/ .*//r, '429', 'then it is told';

    is bans($nginx), '', 'which bans nobody';
    is told($nginx->get('/t?u=late&ip=10.0.0.9')), '200',
        'nor is it remembered';

    ends_well($nginx);
};


subtest 'a ban that is known on another machine only' => sub {
    my $redis = redis();

    # one that may not read the log of bans

    $redis->command(qw(ACL SETUSER deaf on >secret ~* +@all -xrange));

    my $one = machine($redis, 'timeout=5s');
    my $two = machine($redis, 'redis://deaf:secret@' . $redis->node
                              . ' timeout=5s');

    ban_it($one);
    is lift($two), '200 {"lifted":0}', 'it lifts what it does not know';
    ok waits_for(WITHIN, sub { bans($one) eq '' }), 'and that is lifted there';
    is crowd($one), all_pass(), 'for good';
    is bans($one) . bans($two), '', 'nobody is banned';

    ends_well($_) foreach $one, $two;
};


subtest 'late: lifted here, and everywhere when the store has forgotten' => sub {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $one = machine($redis, $proxy->node . ' timeout=300ms');
    my $two = machine($redis, 'timeout=5s');

    ban_it($one);
    ok waits_for(WITHIN, sub { bans($two) eq PREFIX }), 'banned on both';

    $proxy->hold('forget');

    my $lifting = lifting($one);
    is answer_of($lifting), '200 {"lifted":1,"forgotten":false}', 'it says so';
    cmp_ok $lifting->{seconds}, '>=', 0.29, 'not before it is late';
    cmp_ok $lifting->{seconds}, '<', 1.3, 'nor much later';
    is bans($one), '', 'it is lifted here';

    # others know better

    ok waits_for(5, sub { newcomer($one) =~ /^429/ }), 'the segment is full';
    ok waits_for(5, sub { bans($one) eq PREFIX }), 'and bans again';
    sleep 1;
    is bans($two), PREFIX, 'it was never lifted on the other machine';

    $proxy->release;
    ok waits_for(WITHIN, sub { bans($one) eq '' }), 'then it is lifted for good';
    ok waits_for(WITHIN, sub { bans($two) eq '' }), 'there as well';
    is crowd($two), all_pass(), 'there, all who come pass';
    sleep 0.6;
    is bans($one) . bans($two), '', 'and nobody is banned';
    is $one->log_lines(qr/lifts the ban of .* as client 127\.0\.0\.1 has asked/),
        1, 'who had asked is logged';

    ends_well($_) foreach $one, $two;
};


subtest 'late: who bans by hand meanwhile has the last word' => sub {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $one = machine($redis, $proxy->node . ' timeout=300ms');
    my $two = machine($redis, 'timeout=5s');

    ban_it($one);
    $one->ban('g', 'user', 'mallory', 600);
    ok waits_for(WITHIN, sub { bans($two) eq PREFIX . ' mallory' }), 'banned';

    $proxy->hold('forget');
    is lift($one, 'bans?guard=g'), '200 {"lifted":2,"forgotten":false}',
        'all are lifted, late';
    $one->ban('g', 'segment', PREFIX, 600);
    $one->ban('g', 'user', 'eve', 600);
    $proxy->release;

    ok waits_for(WITHIN, sub { bans($two) eq PREFIX . ' eve' }),
        'what was banned since is, on the other machine';
    sleep 1.2;
    is bans($one), PREFIX . ' eve', 'and here';
    is bans($two), PREFIX . ' eve', 'and stays';
    is lift($one, 'bans?guard=g'), '200 {"lifted":2}', 'until it is lifted';
    ok waits_for(WITHIN, sub { bans($two) eq '' }), 'everywhere';

    ends_well($_) foreach $one, $two;
};


subtest 'a store that hangs, and one that is away' => sub {
    my $redis = redis();
    my $nginx = machine($redis, 'timeout=200ms');

    ban_it($nginx);
    $redis->freeze;
    is lift($nginx), '200 {"lifted":1,"forgotten":false}', 'it hangs';
    is newcomer($nginx), '200', 'lifted all the same';
    is bans($nginx), '', 'it is not banned again';
    $redis->thaw;

    ok waits_for(5, sub { keys_of($redis) !~ /:segment/ }),
        'it forgets when it can';
    ok down($nginx, 0), 'it is up';
    ok waits_for(5, sub { newcomer($nginx) eq '200' }), 'new users pass';
    is bans($nginx), '', 'none is banned';

    # a key that nothing but the forget can delete

    $nginx->ban('g', 'segment', PREFIX, 600);
    my ($key) = grep { /:segment/ } split / /, keys_of($redis);
    $redis->kill;
    ok down($nginx, 1), 'it is down' if newcomers_fail($nginx);
    is lift($nginx), '200 {"lifted":1,"forgotten":false}', 'it is away';
    $redis->start;
    $redis->command('ZADD', $key, 1, 'x');
    ok waits_for(5, sub { !$redis->command('EXISTS', $key) }),
        'it forgets when it is back';

    ends_well($nginx);
};


# Some failures in a row; what is decided meanwhile is the zone's

sub newcomers_fail {
    my ($nginx) = @_;
    newcomer($nginx, ip => "10.9.$_.9") foreach 1 .. 40;
    return 1;
}


subtest 'what another machine has counted while the store was away' => sub {
    my $redis = redis();
    my $one = machine($redis, 'timeout=200ms');
    my $two = machine($redis, 'timeout=200ms');

    $redis->kill;
    ban_it($two);
    $redis->start;
    ok waits_for(5, sub { bans($one) eq PREFIX }), 'banned on both';

    is lift($one), '200 {"lifted":1}', 'lifted';
    ok waits_for(WITHIN, sub { bans($two) eq '' }), 'on both';

    $redis->kill;
    is newcomer($two), '200', 'there, whoever comes is decided afresh';

    ends_well($_) foreach $one, $two;
};


subtest 'a client that leaves' => sub {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $nginx = machine($redis, $proxy->node . ' timeout=5s');

    ban_it($nginx);
    $proxy->hold('forget');

    my ($one, $two) = connections($nginx);
    send_on($two, $nginx, 'DELETE', '/iap_guard/' . LIFT);
    ok waits_for(5, sub { $proxy->held('forget') == 1 }), 'the store is asked';
    close $two;

    ok waits_for(5, sub { slurp($nginx->file('access.log'))
                          =~ /^DELETE 499$/m }), 'it is seen at once';
    is bans($nginx), PREFIX, 'still banned';

    $proxy->release;
    ok waits_for(5, sub { bans($nginx) eq '' }), 'lifted all the same';
    is crowd($nginx), all_pass(), 'and forgotten';

    ends_well($nginx);
};


subtest 'a worker that quits answers first' => sub {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $nginx = machine($redis, $proxy->node . ' timeout=5s');

    ban_it($nginx);
    $proxy->hold('forget');
    my $lifting = lifting($nginx);
    ok waits_for(5, sub { $proxy->held('forget') == 1 }), 'the store is asked';

    ok $nginx->reload, 'a reload';
    run_for($lifting, 0.2);
    ok !$lifting->{answer}, 'no answer';
    $proxy->release;
    is answer_of($lifting), '200 {"lifted":1}', 'then it answers';
    is crowd($nginx), all_pass(), 'and all who come pass';
    ok waits_for(5, sub { $nginx->all_workers == WORKERS }),
        'the old workers go';

    ends_well($nginx);
};


foreach my $mode (qw(single proxy)) {

    subtest "$mode: many at once" => sub {
        my $n = 1500;
        my $redis = redis();
        my $proxy = IapGuard::RedisProxy->new($redis);
        my $nginx = machine($redis, $proxy->node . " timeout=5s mode=$mode",
                            zone => '16m');

        is newcomer($nginx), '200', 'it works';
        my ($key) = grep { /:segment/ } split / /, keys_of($redis);
        my ($name) = $key =~ /^(.*:)10\.0\.0/;

        foreach my $i (1 .. $n) {
            my $prefix = sprintf '10.%d.%d.0/24', $i / 250, $i % 250;
            $nginx->ban('g', 'segment', $prefix, 600);
            $redis->command('ZADD', "$name$prefix", 1, 'x');
        }

        $proxy->hold('forget');
        my $lifting = lifting($nginx, 'bans?guard=g');
        waits_for(5, sub { $proxy->held('forget') >= 16 });
        run_for($lifting, 0.3);
        is $proxy->held('forget'), 16, 'so many calls at once, and no more';
        ok !$lifting->{answer}, 'no answer';

        $proxy->release;
        is answer_of($lifting), "200 {\"lifted\":$n}", 'all are lifted';
        cmp_ok $lifting->{seconds}, '<', 6, 'in good time';
        is scalar(grep { /10\.\d+\.\d+\.0/ } split / /, keys_of($redis)), 1,
            'all are forgotten, but nothing else';
        note sprintf '%d calls, %.2f s', scalar($proxy->keys('forget')),
             $lifting->{seconds};

        my @keys = $proxy->keys('forget');
        my $sum = 0;
        $sum += $_ foreach @keys;
        is $sum, $n, 'each once';
        cmp_ok scalar(grep { $_ > 64 } @keys), '==', 0, 'no call has too many';
        cmp_ok scalar(@keys), '<=', $n / 64 + 1, 'nor too few'
            if $mode eq 'single';

        ends_well($nginx);
    };
}


subtest 'a store that refuses to forget' => sub {
    my $redis = redis();
    my $one = machine($redis, 'timeout=5s');
    my $two = machine($redis, 'timeout=5s');

    ban_it($one);
    ok waits_for(WITHIN, sub { bans($two) eq PREFIX }), 'banned on both';

    $redis->command(qw(ACL SETUSER default -del));
    is lift($one), '200 {"lifted":1,"forgotten":false}', 'it says so';
    sleep 1.5;
    is bans($two), PREFIX, 'the other machine is not told';
    ok waits_for(10, sub { $one->log_lines(
           qr/\[error\].* has not forgotten 1 segments .*no more: it refuses to/) }),
        'it is given up, which is logged';
    ok waits_for(WITHIN, sub { bans($two) eq '' }),
        'but then it is lifted on the other machine, too';
    is $one->metrics->{iap_guard_store_up}, 1, 'the store is not down for that';
    is scalar($one->log_lines(qr/is down/)), 0, 'nor was it';

    $redis->command(qw(ACL SETUSER default +del));
    is lift($one), '200 {"lifted":0}', 'asked once more, it forgets';
    is crowd($one), all_pass(), 'and all who come pass';

    ends_well($_) foreach $one, $two;
};


subtest 'a change stands in the log when it is answered' => sub {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $one = machine($redis, $proxy->node . ' timeout=5s');
    my $two = machine($redis, 'timeout=5s');

    $proxy->hold('ban');
    my $banning = banning($one, 'mallory');
    ok waits_for(5, sub { $proxy->held('ban') == 1 }), 'a ban is to be logged';
    run_for($banning, 0.3);
    ok !$banning->{answer}, 'no answer';
    is told($one->get('/bucket?u=mallory')), '429 ban',
        'but it is in force here';
    $proxy->release;
    like answer_of($banning), qr/^201 .*"seconds":\d+\}$/, 'then it answers';

    # so what another machine is told next comes later

    like lift($two, 'bans?key=mallory'), qr/^200 \{"lifted":[01]\}$/,
        'lifted on the other machine';
    ok waits_for(WITHIN, sub { bans($one) eq '' }), 'and here';
    sleep 0.6;
    is bans($one) . bans($two), '', 'for good';

    $proxy->hold('ban');
    my $lifting = lifting($one, 'bans?key=mallory');
    ok waits_for(5, sub { $proxy->held('ban') == 1 }), 'a lift is to be logged';
    run_for($lifting, 0.3);
    ok !$lifting->{answer}, 'no answer';
    $proxy->release;
    is answer_of($lifting), '200 {"lifted":0}', 'then it answers';

    # the client may leave

    my ($socket) = connections($one);
    $proxy->hold('ban');
    send_on($socket, $one, 'DELETE', '/iap_guard/bans?key=eve');
    ok waits_for(5, sub { $proxy->held('ban') == 1 }), 'one more';
    close $socket;
    ok waits_for(5, sub { slurp($one->file('access.log'))
                          =~ /^DELETE 499$/m }), 'whose client leaves';
    $proxy->release;

    ends_well($_) foreach $one, $two;
};


subtest 'a change that cannot be logged in time' => sub {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $one = machine($redis, $proxy->node . ' timeout=300ms');
    my $two = machine($redis, 'timeout=5s');

    $proxy->hold('ban');

    my $banning = banning($one, 'mallory');
    like answer_of($banning), qr/^201 .*"key":"mallory",.*"shared":false\}$/,
        'a ban says so';
    cmp_ok $banning->{seconds}, '>=', 0.29, 'not before it is late';
    cmp_ok $banning->{seconds}, '<', 1.3, 'nor much later';
    is lift($one, 'bans?key=eve'), '200 {"lifted":0,"shared":false}',
        'so does a lift';
    $proxy->release;
    ok waits_for(5, sub { bans($two) eq 'mallory' }), 'they come later';

    # where the store is known to be away nobody waits

    $redis->kill;
    ok waits_for(10, sub { newcomers_fail($one);
                           !$one->metrics->{iap_guard_store_up} }), 'away';

    my $waited = 0;

    foreach my $i (1 .. 20) {
        $banning = banning($one, "u$i");
        like answer_of($banning), qr/^201 .*"shared":false\}$/, 'it says so';
        $waited += $banning->{seconds};
    }

    cmp_ok $waited, '<', 3, 'and soon';
    $redis->start;
    ok waits_for(10, sub { scalar(split / /, bans($two)) == 21 }),
        'they come later';

    ends_well($_) foreach $one, $two;
};


# Sentinels that do not answer, one after the other, have a time-out each.

subtest 'a store that is still being looked for' => sub {
    my @sentinels = map { IapGuard::FakeRedis->new(port => 0)->start } 1 .. 4;
    $_->behave('*', hang => 1) foreach @sentinels;

    my $nginx = machine(undef, join(' ', map { 'redis://' . $_->node }
                                         @sentinels)
                        . ' mode=sentinel master=m timeout=1s');

    my $banning = banning($nginx, 'mallory');
    my $lifting = lifting($nginx);

    like answer_of($banning), qr/^201 .*"shared":false\}$/, 'a ban';
    cmp_ok $banning->{seconds}, '<', 1.8, 'has its own time-out';
    is answer_of($lifting), '200 {"lifted":0,"forgotten":false}', 'a lift';
    cmp_ok $lifting->{seconds}, '<', 1.8, 'as well';

    ends_well($nginx);
};


subtest 'nothing to forget, nothing to wait for' => sub {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $nginx = machine($redis, $proxy->node . ' timeout=5s');

    $nginx->ban('g', 'user', 'mallory', 600);
    $nginx->ban('g', 'segment', '10.0.0.0/16', 600);
    $proxy->hold('forget');

    is lift($nginx, 'bans?key=mallory'), '200 {"lifted":1}', 'a user';
    is lift($nginx, 'bans?key=10.0.0.0/16'), '200 {"lifted":1}',
        'a prefix of no segment';
    is lift($nginx, 'bans?layer=user&key=10.0.0.0/24'), '200 {"lifted":0}',
        'not the prefix, but a user of that name';
    is lift($nginx, 'bans?guard=none&key=10.0.0.0/24'), '200 {"lifted":0}',
        'no guard';
    is scalar($proxy->keys('forget')), 0, 'the store was not asked';

    ends_well($nginx);
};


# Two connections that two workers have: [socket, ...]

sub connections {
    my ($nginx) = @_;
    my %of;

    for (1 .. 100) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                           PeerPort => $nginx->port)
            or die "connect: $!\n";

        send_on($socket, $nginx, 'GET', '/iap_guard/');
        my $head = read_head($socket);
        my ($worker) = $head =~ /^X-Worker: (\d+)/m or die "no worker: $head\n";
        read_body($socket, $head);

        $of{$worker} ||= $socket;
        return (values %of)[0, 1] if CORE::keys(%of) == 2;
    }

    die "one worker has all connections\n";
}

sub send_on {
    my ($socket, $nginx, $method, $path) = @_;

    print {$socket} "$method $path HTTP/1.1\r\nHost: x\r\n"
        . 'Authorization: Bearer ' . $nginx->token . "\r\n\r\n";
    $socket->flush;

    return;
}

sub read_head {
    my ($socket) = @_;
    my $head = '';

    while (my $line = <$socket>) {
        last if $line eq "\r\n";
        $head .= $line;
    }

    return $head;
}

sub read_body {
    my ($socket, $head) = @_;
    my ($length) = $head =~ /^Content-Length: (\d+)/mi;

    read $socket, my $body, $length || 0;

    return $body // '';
}

# "200 {...}"

sub read_on {
    my ($socket) = @_;
    my $head = read_head($socket);
    my ($status) = $head =~ m{^HTTP/1\.1 (\d+)} or return "none: $head";

    return "$status " . read_body($socket, $head) =~ s/\n\z//r;
}

sub slurp {
    my ($file) = @_;
    open my $in, '<', $file or return '';
    local $/;
    return <$in> // '';
}


done_testing;
