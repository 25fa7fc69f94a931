package IapGuard::Asked;

# Requests that are sent at once, each on a connection of its own and by a user
# of its own, and waited for when it pleases:
#
#   my $asked = IapGuard::Asked->new(port => $nginx->port, path => '/x',
#                                    users => ['a1' .. 'a9']);
#   $asked->run(0.1);           # that long, however many are answered
#   $asked->wait;               # for all
#   $asked->{statuses};         # { 200 => 9 }; an error is its text
#   $asked->{stores};           # by X-Store
#   $asked->{workers};          # by X-Store and X-Worker: { 'redis 17' => 9 }
#
# The connections are not kept.

use strict;
use warnings;

use IapGuard::LoadClient;
use IapGuard::Loop;


sub new {
    my ($class, %options) = @_;
    my @users = @{ $options{users} };
    my $loop  = IapGuard::Loop->new;

    my $self = bless { loop => $loop, left => scalar @users,
                       map { $_ => {} } qw(statuses stores workers) }, $class;

    $self->{client} = IapGuard::LoadClient->new(loop => $loop,
        port => $options{port}, connections => scalar @users);

    foreach my $user (@users) {
        $self->{client}->request(
            { method => 'GET', path => $options{path},
              headers => { 'X-User-Id' => $user, 'X-Device-Id' => $user,
                           Connection => 'close' } },
            sub { $self->_answered(@_) });
    }

    return $self;
}


sub run {
    my ($self, $seconds) = @_;
    my $done = 0;

    $self->{loop}->after($seconds, sub { $done = 1 });
    $self->{loop}->run_until(sub { $done });

    return;
}


sub wait {
    my ($self) = @_;
    $self->{loop}->run_until(sub { !$self->{left} });
    return;
}


sub _answered {
    my ($self, $answer) = @_;
    my $headers = $answer->{headers} || {};
    my ($store, $worker) = map { defined $_ ? $_ : '' }
                           @$headers{qw(x-store x-worker)};

    $self->{left}--;
    $self->{statuses}{ $answer->{status} || $answer->{error} }++;
    $self->{stores}{$store}++;
    $self->{workers}{"$store $worker"}++;

    return;
}


1;
