package IapGuard::Charges;

# Guards as tables: what nginx is told of them, and what Redis has to hold when
# it is known which requests were admitted.
#
#   my $charges = IapGuard::Charges->new(redis => $redis, guards => {
#       '/path' => { name => 'one', dry_run => 1, layers => [
#           { name => 'segment', bits => 24, most => 20 },
#           { name => 'user', of => 'user', most => 3 },
#           { name => 'promo', of => 'tenant', most => 9, missing => 'skip' },
#           { name => 'global', most => 500, dry_run => 1 } ] } });
#
#   $charges->locations;            # of nginx.conf
#   my @wrong = $charges->look;     # what is in Redis; keys that are unsound
#   @wrong = $charges->differences(@answers);   # between it and these
#   @wrong = $charges->unfounded(@answers);     # refusals without a reason
#
# Buckets get one token a day and windows last a day, so that a short test has
# none of it back.  `of` and `address` are fields X-User, X-Address and so on.
# `most` of a segment may be a variable, $http_x_users.
#
# An answer is { path, user, device, tenant, users, address, status, verdict,
# layer }, where an identity that was not sent is undef.

use strict;
use warnings;

use List::Util qw(max min);
use POSIX qw(ceil floor);
use Socket qw(AF_INET AF_INET6 inet_ntop inet_pton);

# as in lua/decide.lua: a tick is 50 ns

use constant {
    EPOCH     => 1_735_689_600,
    TICKS     => 20_000_000,        # in a second
    TICKS_MS  => 20_000,
    PARTS     => 6,
    USERS     => 10,                # of a segment that is not told how many
    CLIENT    => '@127.0.0.1',      # in place of a missing identity
};

use constant DAY => 86_400 * TICKS;

# by the IPv4 length, which a segment is known by

my %IPV6 = (32 => 64, 24 => 48, 16 => 32);


sub new {
    my ($class, %options) = @_;
    return bless { %options, held => {} }, $class;
}


sub locations {
    my ($self) = @_;
    my $text = '';

    foreach my $path (sort keys %{ $self->{guards} }) {
        my $guard  = $self->{guards}{$path};
        my @layers = @{ $guard->{layers} };

        $text .= "location = $path { iap_guard $guard->{name}"
                 . ($guard->{dry_run} ? " dry_run=on;\n" : ";\n");
        $text .= "iap_guard_user \$http_x_user;\n"
            unless grep { $_->{name} eq 'user' } @layers;
        $text .= _directive($_) foreach @layers;
        $text .= "empty_gif; }\n";
    }

    return $text;
}


sub _directive {
    my ($layer) = @_;
    my ($name, $most, $bits) = @{$layer}{qw(name most bits)};
    my $dry = $layer->{dry_run} ? 'dry_run=on' : '';

    return "iap_guard_global rate=${most}r/d window=1d $dry;\n"
        if $name eq 'global';

    return "iap_guard_segment ipv4=$bits ipv6=$IPV6{$bits} users=$most"
           . " window=1d address=\$http_x_address $dry;\n" if $bits;

    my $directive = $name =~ /^(?:user|device)$/ ? $name : "bucket $name";
    my $missing   = $layer->{missing} ? "missing=$layer->{missing}" : '';

    return "iap_guard_$directive \$http_x_$layer->{of} capacity=$most rate=1r/d"
           . " $missing $dry;\n";
}


# A key without the prefix, and without what is the same for all: a number, or
# { user => 1 }

sub look {
    my ($self) = @_;
    my $redis = $self->{redis};
    my (%held, @wrong);

    foreach my $key (@{ $redis->command('KEYS', '*') }) {
        my ($guard, $layer, $bits, $span, $id)
            = $key =~ m{^iap:(\w+):(\w+)(?:(/\d+)?/(\d+))?:(.+)$}
            or push @wrong, "$key is of nobody" and next;

        my ($holds, $ends) = defined $bits ? $self->_set($key, $span)
                           : defined $span ? $self->_window($key, $span)
                           :                 $self->_bucket($key);

        my $expires = $redis->command('PEXPIRETIME', $key);
        my $right   = EPOCH * 1000 + ceil($ends / TICKS_MS);

        push @wrong, "$key expires at $expires, not at $right"
            if $expires != $right;
        push @wrong, "$key holds provisional users"
            if ref $holds && grep { $_ != 1 } values %$holds;

        $bits //= '';
        $held{"$guard:$layer$bits:$id"} = $holds;
    }

    $self->{held} = \%held;

    return @wrong;
}


# Tokens that were taken: a part of one may be back.

sub _bucket {
    my ($self, $key) = @_;
    my $full = $self->{redis}->command('GET', $key);
    my ($seconds, $us) = @{ $self->{redis}->command('TIME') };
    my $now = ($seconds - EPOCH) * TICKS + $us * TICKS / 1_000_000;

    return ceil(($full - $now) / DAY), $full;
}

sub _window {
    my ($self, $key, $length) = @_;
    my ($start, $count) = split ' ', $self->{redis}->command('GET', $key);
    return $count, $start + $length;
}

# a user who is provisional is not 1, but a half

sub _set {
    my ($self, $key, $part) = @_;
    my %seen = @{ $self->{redis}->command('ZRANGE', $key, 0, -1,
                                          'WITHSCORES') };
    my $latest = max map { floor($_) } values %seen;

    return { map { $_ => 1 - ($seen{$_} - floor($seen{$_})) } keys %seen },
           ($latest + PARTS) * $part;
}


# [layer, key] of all layers that a request is held to

sub _held_to {
    my ($self, $asked) = @_;
    my $guard = $self->{guards}{ $asked->{path} };
    my @all;

    foreach my $layer (@{ $guard->{layers} }) {
        my $id = $layer->{name} eq 'global' ? 'all'
               : $layer->{bits} ? _network($asked->{address}, $layer->{bits})
               :                  _identity($layer, $asked);
        my $bits = $layer->{bits} ? "/$layer->{bits}" : '';

        push @all, [$layer, "$guard->{name}:$layer->{name}$bits:$id"]
            if defined $id;
    }

    return @all;
}


# Who has a user but no device is let by: so docs/directives.md

sub _identity {
    my ($layer, $asked) = @_;
    my $skip = $layer->{missing} ? $layer->{missing} eq 'skip'
             : $layer->{name} eq 'device' && defined $asked->{user};

    return $asked->{ $layer->{of} } // ($skip ? undef : CLIENT);
}


sub _network {
    my ($address, $bits) = @_;
    my $family = $address =~ /:/ ? AF_INET6 : AF_INET;
    my $binary = inet_pton($family, $address);

    $bits = $IPV6{$bits} if $family == AF_INET6;

    my $mask = pack 'B' . 8 * length $binary, '1' x $bits;

    return inet_ntop($family, $binary & $mask) . "/$bits";
}


sub differences {
    my ($self, @answers) = @_;
    my (%want, %layers, @wrong);

    foreach my $answer (grep { $_->{status} == 200 } @answers) {

        # whom a guard in dry run would have refused is not charged

        next if $self->{guards}{ $answer->{path} }{dry_run}
                && $answer->{verdict} ne 'passed';

        foreach my $charge ($self->_held_to($answer)) {
            my ($layer, $key) = @$charge;

            $layers{$key} = $layer;

            if ($layer->{bits}) {
                $want{$key}{ $answer->{user} // CLIENT } = 1;
            } else {
                $want{$key}++;
            }
        }
    }

    my %both = (%want, %{ $self->{held} });

    foreach my $key (sort keys %both) {
        my $said = _differs($layers{$key}, $want{$key}, $self->{held}{$key});
        push @wrong, "$key: $said" if $said;
    }

    return @wrong;
}


# A layer in dry run takes who comes while there is room; of a set it is not
# known who that was.

sub _differs {
    my ($layer, $want, $held) = @_;

    return 'nobody was admitted' if !$layer;

    my ($wanted, $is) = map { ref $_ ? scalar keys %$_ : $_ || 0 } $want, $held;
    my $most = $layer->{most};

    $wanted = min($wanted, $most) if $layer->{dry_run};

    return "$is in Redis, $wanted admitted" if $is != $wanted;
    return "$is, which is more than $most"
        if $most =~ /^\d/ && $is > int $most;

    my @others = ref $held ? grep { !$want->{$_} } keys %$held : ();

    return @others ? "was never admitted: @others" : '';
}


sub unfounded {
    my ($self, @answers) = @_;
    my @wrong;

    foreach my $answer (@answers) {
        my $name  = $answer->{layer};
        my @met   = grep { $_->[0]{name} eq $name
                           && !($answer->{status} == 429 && $_->[0]{dry_run})
                          } $self->_held_to($answer);
        my $spent = $answer->{status} == 400
            ? grep { !defined $answer->{ $_->[0]{of} } } @met
            : grep { $self->_spent($answer, @$_) } @met;

        push @wrong, join ' ', map { "$_=" . ($answer->{$_} // '') }
                                   sort keys %$answer
            if length $name && !$spent;
    }

    return @wrong;
}


sub _spent {
    my ($self, $answer, $layer, $key) = @_;
    my $held = $self->{held}{$key};
    my $most = $layer->{most} =~ /^\d/ ? int $layer->{most}
                                       : $answer->{users} || USERS;

    return ref $held ? keys %$held >= $most : ($held || 0) >= $most;
}


1;
