package IapGuard::StockScript;

# lua/stock.lua, called as src/event/ngx_iap_shared_stock.c does, with a
# redis-server's own memory as the ledger:
#
#     my $code = IapGuard::StockScript->new($redis, "$root/lua/stock.lua");
#
#     $code->set(10)                                   "ok"
#     $code->reserve('ann', 't1', lease => 100)        "reserved"
#     $code->unit('t1', 'sell', status => 201)         "ok 1 3"
#     $code->numbers                                   "10 1 0/0"
#
# Each object is another code.

use strict;
use warnings;

use Exporter qw(import);
use Time::HiRes ();

our @EXPORT_OK = qw(text_of);

use constant SWEEP => 64;

my @KEYS  = qw(code unit user made lease sold gone);
my @UNIT  = qw(token user state made until status ticket);
my @INFO  = qw(initial sold reserved forgotten closed expires units_sold
               units_reserved);

my $codes = 0;
my %shas;


sub text_of {
    my ($file) = @_;
    local $/;
    open my $in, '<', $file or die "$file: $!\n";
    return scalar <$in>;
}


sub new {
    my ($class, $redis, $file, %options) = @_;
    my $text = ($options{before} // '') . text_of($file);
    my $sha  = $shas{"$redis"}{$text} ||= $redis->command('SCRIPT', 'LOAD', $text);

    return bless { redis => $redis, sha => $sha, prefix => 'iap:',
                   name => 'C' . ++$codes, %options }, $class;
}


sub key  { return "$_[0]{prefix}code:\{$_[0]{name}}:$_[1]" }
sub keys { my ($self) = @_; return map { $self->key($_) } @KEYS }

sub index_keys { return map { "$_[0]{prefix}\{codes}:$_" } qw(name stamp) }


# the reply as it is; it dies of one that says that a key is broken

sub call_keys {
    my ($self, $keys, @arguments) = @_;
    my $reply = $self->{redis}->command('EVALSHA', $self->{sha}, scalar @$keys,
                                        @$keys, @arguments);

    die "broken: $reply->[1]\n" if $reply->[0] eq 'broken';

    return $reply;
}

sub call {
    my ($self, @arguments) = @_;
    return $self->call_keys([$self->keys], @arguments);
}


sub reserve {
    my ($self, $user, $token, %options) = @_;

    return join ' ', @{ $self->call('reserve', $user, $token,
        $options{lease} // 30_000, $options{unknown} // 's',
        $options{dry} // 0, $options{look} // 0) };
}


sub unit {
    my ($self, $token, $event, %options) = @_;

    return join ' ', @{ $self->call('unit', $token, $event,
        $options{status} // 0, $options{lease} // 30_000,
        $options{ticket} // '') };
}


# edits of several codes, as a single server carries them out:
# [$code, what => 'set', units => 5, expires => 0], ...

sub edits {
    my ($self, $how, @edits) = @_;
    my (@keys, @arguments);

    foreach my $edit (@edits) {
        my ($code, %edit) = @$edit;

        push @keys, $code->keys;
        push @arguments, $edit{what}, $code->{name}, $edit{units} // 0,
             $edit{expires} // 0;
    }

    push @keys, ($self->index_keys)[0] if $how eq 'all';

    my @reply = @{ $self->call_keys(\@keys, 'edit', $how, $self->{look} // 0,
                                    SWEEP, @arguments) };
    return $reply[0] eq 'ok' ? 'ok' : join ' ', @reply;
}

sub edit { my ($self, %edit) = @_; return $self->edits('all', [$self, %edit]) }
sub set  { my ($self, $n, %edit) = @_; return $self->edit(what => 'set', units => $n, %edit) }
sub add  { return $_[0]->edit(what => 'add', units => $_[1]) }


# what is known of the code, by name; undef: nothing

sub info {
    my ($self, @what) = @_;
    my ($word, @words);

    do {
        ($word, @words) = @{ $self->call(@what ? @what : ('code', SWEEP)) };
    } while $word eq 'more';

    return undef if $word ne 'ok';

    my %info;
    @info{@INFO} = splice @words, 0, scalar @INFO;
    $info{difference} = $info{sold} + $info{reserved} - $info{forgotten}
                      - $info{units_sold} - $info{units_reserved};

    return wantarray ? (\%info, @words) : \%info;
}


# "initial sold reserved/difference"

sub numbers {
    my ($self) = @_;
    my $info = $self->info or return 'none';

    return "$info->{initial} $info->{sold} $info->{reserved}/$info->{difference}";
}


# the units, as hashes; and whether there are more, in $code->{more}, and where,
# in $code->{next}

sub audit {
    my ($self, $count, @from) = @_;
    my ($info, $more, @words) = $self->info('audit', SWEEP, $count // 1000,
                                            @from ? @from : (0, 0));
    my @units;

    $self->{more} = $more;
    $self->{next} = [splice @words, 0, 2];

    while (@words) {
        my %unit;
        @unit{@UNIT} = splice @words, 0, scalar @UNIT;
        push @units, \%unit;
    }

    return @units;
}


# "t1:3 t2:1"

sub states {
    my ($self) = @_;
    return join ' ', map { "$_->{token}:$_->{state}" } $self->audit;
}


sub named {
    my ($self, $after, $count) = @_;
    my ($word, @names) = @{ $self->call_keys([$self->index_keys], 'names',
                                             $after // '', $count // 1000) };
    return @names;
}


# As if the clock had been set back by so many ms (or on, below 0): all moments
# lie further ahead by that.

sub clock_back {
    my ($self, $ms) = @_;

    $self->{redis}->command('EVAL', <<'END', scalar @KEYS, $self->keys, $ms);
        local by = tonumber(ARGV[1])
        local units = redis.call('HGETALL', KEYS[2])

        for i = 1, #units, 2 do
          local state, made, ends, rest =
            units[i + 1]:match('^(%d) (%d+) (%d+) (.*)$')

          ends = ends == '0' and 0 or ends + by
          redis.call('HSET', KEYS[2], units[i],
                     string.format('%s %.0f %.0f %s', state, made + by, ends,
                                   rest))
        end

        for k = 4, 7 do
          for _, token in ipairs(redis.call('ZRANGE', KEYS[k], 0, -1)) do
            redis.call('ZINCRBY', KEYS[k], by, token)
          end
        end
END

    return;
}


# What must be true of a code whatever was done to it; the first thing that is
# not, or ''.

sub wrong {
    my ($self) = @_;

    return $self->{redis}->command('EVAL', <<'END', scalar @KEYS, $self->keys);
        local call = redis.call
        local units = call('HGETALL', KEYS[2])
        local sets = { ['1'] = 5, ['3'] = 6, ['5'] = 6, ['4'] = 7, ['6'] = 7 }
        local sold, reserved, holds = 0, 0, {}

        for i = 1, #units, 2 do
          local token = units[i]
          local state, made, ends, lease, unknown, status, ticket, user =
            units[i + 1]:match('^(%d) (%d+) (%d+) (%d+) ([srt]) (%d+) (%S+) (.*)$')

          if not state then return token .. ': ' .. units[i + 1] end

          if call('ZSCORE', KEYS[4], token) ~= made then
            return token .. ' was not made then'
          end

          for k = 5, 7 do
            local score = call('ZSCORE', KEYS[k], token) or nil

            if score ~= (sets[state] == k and ends or nil) then
              return token .. ' of state ' .. state .. ' in set ' .. k
            end
          end

          if (state == '2') ~= (ends == '0') then return token .. ' ends' end
          if state == '1' or state == '2' then reserved = reserved + 1 end
          if state == '3' or state == '5' then sold = sold + 1 end

          if user ~= '' and not state:match('[46]') then
            holds[user] = (holds[user] or 0) + 1

            if not (' ' .. (call('HGET', KEYS[3], user) or '') .. ' '):find(' ' .. token .. ' ', 1, true) then
              return token .. ' is not its user\'s'
            end
          end
        end

        local users = call('HGETALL', KEYS[3])

        for i = 1, #users, 2 do
          local _, n = users[i + 1]:gsub('%S+', '')

          if n ~= (holds[users[i]] or 0) then
            return users[i] .. ' has ' .. n .. ' units'
          end
        end

        if call('ZCARD', KEYS[4]) ~= #units / 2 then return 'made' end

        local c = call('HMGET', KEYS[1], 'sold', 'reserved', 'forgotten')

        if not c[1] then
          return #units == 0 and '' or 'units of no code'
        end

        if tonumber(c[1]) - c[3] ~= sold then return 'sold' end
        if tonumber(c[2]) ~= reserved then return 'reserved' end

        for k = 1, 7 do
          if call('TTL', KEYS[k]) >= 0 then return 'key ' .. k .. ' expires' end
        end

        return ''
END
}


sub pause { return Time::HiRes::sleep($_[1] / 1000) }


1;
