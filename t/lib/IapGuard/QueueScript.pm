package IapGuard::QueueScript;

# lua/queue.lua, called as src/event/ngx_iap_shared_call.c does, with a
# redis-server's own memory as the ledger:
#
#     my $queue = IapGuard::QueueScript->new($redis, "$root/lua/queue.lua");
#
#     $queue->put('t1', key => 'k', user => 'u')       "ok t1"
#     $queue->take(session => 2, count => 3)           the entries
#     $queue->find('t1')->{status}
#
# Each queue is another one.  An entry is a hash of the reply's words by name;
# what take() was told besides is in $queue->{wait} and $queue->{paced}.

use strict;
use warnings;

use Exporter qw(import);
use Time::HiRes ();

our @EXPORT_OK = qw(tickets);

use constant LEASE => 15_000;

my @KEYS = qw(entry record result key due ready work callback lease ended count
              pending verified rejected parked dead pace machine);

my @WORDS = qw(number ticket key user status work created ended due leases
               callback deliveries result record);

my $queues = 0;
my %shas;


sub new {
    my ($class, $redis, $file, %options) = @_;

    # not as EVAL, whose text takes longer than what is to be timed

    my $text = do { local $/; open my $f, '<', $file or die "$file: $!\n"; <$f> };
    my $sha  = $shas{$redis}{$text} ||= $redis->command('SCRIPT', 'LOAD', $text);

    return bless { redis => $redis, sha => $sha, prefix => 'iap:',
                   name => 'n' . ++$queues, %options }, $class;
}


sub keys { return map { "$_[0]{prefix}\{q:$_[0]{name}}:$_" } @KEYS }

sub key { return "$_[0]{prefix}\{q:$_[0]{name}}:$_[1]" }


# the reply as it is

sub call {
    my ($self, @arguments) = @_;

    return $self->{redis}->command('EVALSHA', $self->{sha}, scalar @KEYS,
                                   $self->keys, @arguments);
}


sub put {
    my ($self, $ticket, %entry) = @_;

    return $self->put_many([$ticket, %entry]);
}


# [ticket, key => ..., user => ..., max => ..., record => ...], ...

sub put_many {
    my ($self, @entries) = @_;

    my @arguments = map {
        my ($ticket, %entry) = @$_;
        ($ticket, $entry{key} // "key-$ticket", $entry{user} // 'u',
         $entry{max} // 1000, $entry{record} // "record-$ticket");
    } @entries;

    my @reply = @{ $self->call('put', @arguments) };
    my @texts;

    push @texts, join ' ', splice @reply, 0, 2 while @reply;

    return join ', ', @texts;
}


sub bring {
    my ($self, @entries) = @_;

    return join ' ', @{ $self->call('import', map {
        my ($ticket, %e) = @$_;
        ($ticket, $e{key} // "key-$ticket", $e{user} // 'u', $e{status} // 0,
         $e{work} // '', $e{age} // 0, $e{ended} // '', $e{delay} // 0,
         $e{leases} // 0, $e{callback} // 0, $e{deliveries} // 0,
         $e{result} // '', $e{record} // "record-$ticket");
    } @entries) };
}


sub find {
    my ($self, $ticket) = @_;
    my ($word, @words) = @{ $self->call('find', $ticket) };

    return $word eq 'ok' ? _entries(@words) : undef;
}


sub take {
    my ($self, %take) = @_;

    my ($word, $wait, $paced, @words) = @{ $self->call('take',
        $take{what} // 'w', $take{machine} // 1, $take{session} // 1,
        $take{count} // 64, $take{interval} // 0,
        $take{retry_max} // 1_800_000, $take{lease} // LEASE,
        $take{bytes} // 400_000, $take{number} // ++$self->{takes},
        @{ $take{lost} // [0, 0] }) };

    @$self{qw(wait paced)} = ($wait, $paced);

    return _entries(@words);
}


# settle('t1', status => 1, ...): the word; of => the number of the take, here
# and below

sub settle {
    my ($self, $ticket, %settle) = @_;

    return $self->call('settle', $settle{machine} // 1, $settle{session} // 1,
                       $settle{of} // '', $ticket, $settle{work} // '1,0,0',
                       $settle{status} // 0, $settle{delay} // 0,
                       $settle{callback} // 0, $settle{result} // '')->[0];
}


sub deliver {
    my ($self, $ticket, %deliver) = @_;

    return $self->call('deliver', $deliver{machine} // 1,
                       $deliver{session} // 1, $deliver{of} // '', $ticket,
                       $deliver{callback} // 2, $deliver{delay} // 0)->[0];
}


sub renew {
    my ($self, $machine, $session, $lease) = @_;
    return $self->call('renew', $machine, $session, $lease // LEASE)->[1];
}


sub back {
    my ($self, $machine, $session, $number, $of) = @_;
    return $self->call('back', $machine, $session, $of // '',
                       $number // '')->[1];
}


sub list {
    my ($self, %list) = @_;
    my ($word, @words) = @{ $self->call('list', $list{status} // '',
                                        $list{after} // 0,
                                        $list{count} // 1000) };

    return _entries(@words);
}


sub retry { return $_[0]->call('retry', $_[1] // '', $_[2] // 256)->[1] }
sub sweep { return $_[0]->call('sweep', $_[1], $_[2] // 1000)->[1] }


# "pending verified rejected parked dead/callbacks"

sub counts {
    my ($self) = @_;
    my ($word, @n) = @{ $self->call('count') };

    return join(' ', @n[0 .. 4]) . "/$n[5]";
}


# As if the clock had been set back by so many ms: all moments lie further
# ahead by that.

sub clock_back {
    my ($self, $ms) = @_;

    $self->{redis}->command('EVAL', <<'END', scalar @KEYS, $self->keys, $ms);
        local by = tonumber(ARGV[1])
        local entries = redis.call('HGETALL', KEYS[1])
        local tat = redis.call('GET', KEYS[17])

        for i = 1, #entries, 2 do
          if entries[i + 1]:sub(1, 1) ~= '=' then
            local e = cmsgpack.unpack(entries[i + 1])
            local lane = e.status == 0 and 'w' or 'c'
            local name = function()
              return lane .. e.user .. '\0' .. string.format('%020.0f', e.due)
                     .. e.ticket
            end
            local ready = redis.call('ZREM', KEYS[6], name()) == 1

            e.created, e.due = e.created + by, e.due + by
            e.ended = e.ended > 0 and e.ended + by or 0
            redis.call('HSET', KEYS[1], entries[i], cmsgpack.pack(e))

            if ready then
              redis.call('ZADD', KEYS[6], 0, name())
            end
          end
        end

        for _, k in ipairs({ 5, 9, 10 }) do
          for _, member in ipairs(redis.call('ZRANGE', KEYS[k], 0, -1)) do
            redis.call('ZINCRBY', KEYS[k], by, member)
          end
        end

        if tat then
          redis.call('SET', KEYS[17], string.format('%.0f', tat + by))
        end
END

    return;
}


# What must be true of a queue whatever was done to it; the first thing that is
# not, or ''.

sub wrong {
    my ($self) = @_;

    my $text = $self->{redis}->command('EVAL', <<'END', scalar @KEYS, $self->keys);
        local call = redis.call
        local callbacks, n = 0, 0
        local all = call('HGETALL', KEYS[1])
        local numbers = {}

        for i = 1, #all, 2 do
          if all[i + 1]:sub(1, 1) == '=' then
            if call('HEXISTS', KEYS[1], all[i + 1]:sub(2)) == 0 then
              return 'a name of nothing: ' .. all[i]
            end
          else
            local e = cmsgpack.unpack(all[i + 1])
            local lane = e.status == 0 and 'w' or 'c'
            local ready = lane .. e.user .. '\0'
                          .. string.format('%020.0f', e.due) .. e.ticket
            local places, says = 0, all[i] .. ' of status ' .. e.status

            n = n + 1

            if e.ticket ~= all[i] then
              return says .. ' is ' .. e.ticket
            end

            if numbers[e.number] then
              return says .. ' has the number of another'
            end

            numbers[e.number] = true

            for s = 0, 4 do
              if (call('ZSCORE', KEYS[12 + s], e.ticket) or false)
                 ~= (s == e.status and string.format('%.0f', e.number))
              then
                return says .. ' in list ' .. s
              end
            end

            if call('ZSCORE', KEYS[5], e.ticket) then places = places + 1 end
            if call('ZSCORE', KEYS[9], e.ticket) then places = places + 1 end
            if call('ZSCORE', KEYS[10], e.ticket) then places = places + 1 end

            if call('ZSCORE', KEYS[6], ready) then
              places = places + 1

              if not call('ZSCORE', KEYS[lane == 'w' and 7 or 8], e.user) then
                return says .. ' is ready, and its user has no turn'
              end
            end

            local rests = e.status == 3 and e.callback ~= 1

            if places ~= (rests and 0 or 1) then
              return says .. ' is in ' .. places .. ' places'
            end

            if call('HGET', KEYS[4], e.key) ~= e.ticket then
              return says .. ' is not what its key says'
            end

            if (call('HEXISTS', KEYS[2], e.ticket) == 1)
               ~= (e.status ~= 1 and e.status ~= 2)
            then
              return says .. ': record'
            end

            if e.callback == 1 then callbacks = callbacks + 1 end
          end
        end

        for s = 0, 4 do
          n = n - call('ZCARD', KEYS[12 + s])
        end

        if n ~= 0 then return 'entries that are in no list: ' .. n end

        if tonumber(call('HGET', KEYS[11], 'callbacks') or 0) ~= callbacks then
          return 'callbacks'
        end

        return ''
END

    return $text;
}


sub pause { return Time::HiRes::sleep($_[1] / 1000) }


# "t1 t2"

sub tickets { return join ' ', map { $_->{ticket} } @_ }


sub _entries {
    my (@words) = @_;
    my @entries;

    while (@words) {
        my %entry;
        @entry{@WORDS} = splice @words, 0, scalar @WORDS;
        push @entries, \%entry;
    }

    return wantarray ? @entries : $entries[0];
}


1;
