package IapGuard::CrashPeers;

# What a machine under IapGuard::CrashTest speaks with: Apple, and the service
# that is told of results.  Each is a process of its own, which writes into a
# file what it was asked before it answers, so that nothing of that is lost when
# it is killed.
#
#   my $apple = IapGuard::CrashPeers->new(apple => "$folder/apple");
#   my $shop  = IapGuard::CrashPeers->new(shop  => "$folder/shop");
#   $shop->kill;  $shop->start;         # at the same port
#   foreach my $line ($shop->more) { }  # what it has written since the last time
#
# Apple mostly says that a receipt is good; now and then it fails, in ways that
# are tried again.  It writes "ID" of each receipt that it found good.  The shop
# writes "WEBHOOK-ID TYPE KEY TICKET", and now and then does not say that it has.

use strict;
use warnings;

use JSON::PP ();

use IapGuard::Child;
use IapGuard::HTTPServer;
use IapGuard::Loop;
use IapGuard::Port qw(free_port);

use constant {
    FAILS   => 0.06,            # of answers
    SLOW    => 0.05,
    SECONDS => 0.02,            # that an answer takes, at least
    LISTEN  => 10,              # seconds, until an address is free again
};

my $json = JSON::PP->new->canonical->utf8;


sub new {
    my ($class, $what, $file) = @_;

    my $self = bless { what => $what, file => $file, port => free_port(),
                       at => 0 }, $class;

    open my $new, '>', $file or die "$file: $!\n";
    close $new;

    return $self->start;
}


sub port { return $_[0]{port} }


sub start {
    my ($self) = @_;
    my $until = IapGuard::Loop::now() + LISTEN;
    my $listener;

    until ($listener = eval { IapGuard::HTTPServer->listener($self->{port}) }) {
        die "no listener: $@" if IapGuard::Loop::now() > $until;
        select undef, undef, undef, 0.05;
    }

    $self->{child} = IapGuard::Child->start(sub {
        return $self->_serve($listener, @_);
    });
    close $listener;

    return $self;
}


sub kill {
    my ($self) = @_;

    CORE::kill 'KILL', $self->{child}->pid;

    return $self->stop;
}


sub stop {
    my ($self) = @_;
    my $child = delete $self->{child} or return;

    return $child->stop;
}


sub more { return IapGuard::CrashPeers::lines($_[0]{file}, \$_[0]{at}) }


# whole lines behind that place, which is moved

sub lines {
    my ($path, $at) = @_;

    open my $file, '<', $path or die "$path: $!\n";
    seek $file, $$at, 0;

    my $text = do { local $/; <$file> } // '';
    my $end  = rindex $text, "\n";

    return if $end < 0;

    $$at += $end + 1;

    return split /\n/, substr $text, 0, $end;
}


# --- the child ------------------------------------------------------------

sub _serve {
    my ($self, $listener, $gone) = @_;
    my $loop = IapGuard::Loop->new;
    my $done = 0;

    local $SIG{PIPE} = 'IGNORE';
    srand;

    open my $file, '>>', $self->{file} or die "$self->{file}: $!\n";
    $file->autoflush;

    my $answer = $self->{what} eq 'apple' ? \&_apple : \&_shop;

    IapGuard::HTTPServer->new(loop => $loop, listener => $listener,
        on_request => sub { $answer->($loop, $file, @_) });
    $loop->on_read($gone, sub { $done = 1 });
    $loop->run_until(sub { $done });

    return 0;
}


sub _apple {
    my ($loop, $file, $request, $reply) = @_;
    my $id    = (eval { $json->decode($request->{body}) } || {})->{id} // '';
    my $dice  = rand;
    my %plain = ('Content-Type' => 'text/html');

    return $loop->after(SECONDS + (rand() < SLOW ? rand 0.4 : 0), sub {
        return $reply->reset                           if $dice < FAILS / 3;
        return $reply->send(503, \%plain, 'not now')   if $dice < FAILS / 2;
        return $reply->send(200, \%plain, '{"status":21005}')
            if $dice < FAILS;

        print {$file} "$id\n";
        return $reply->send(200, { 'Content-Type' => 'application/json' },
                            qq({"status":0,"receipt":{"id":"$id"}}));
    });
}


sub _shop {
    my ($loop, $file, $request, $reply) = @_;
    my $id   = $request->{headers}{'webhook-id'} // '';
    my $told = eval { $json->decode($request->{body}) } || {};
    my $data = $told->{data} || {};
    my $dice = rand;

    # it has stored that by now, whatever becomes of its answer

    print {$file} join(' ', map { $_ // '-' } $id, $told->{type},
                       @{$data}{qw(key ticket)}), "\n";

    return $reply->reset                if $dice < FAILS / 3;
    return $reply->send(500, {}, 'oh')  if $dice < FAILS / 2;
    return $reply->send(204, {}, '');
}


1;
