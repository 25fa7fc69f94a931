package LinkDns;

# A name server with five names, as a child process: good.test is 127.0.0.1,
# two.test is that and an address where nobody listens, hole.test is never
# answered, and no other name exists.  `delay` => seconds before an answer.

use strict;
use warnings;

use IO::Socket::INET;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;

my %ADDRESSES = (
    'good.test' => ['127.0.0.1'],
    'two.test'  => ['127.0.0.1', '127.1.2.3'],
);


sub new {
    my ($class, %options) = @_;

    my $self = bless { delay => 0, %options }, $class;

    $self->{socket} = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
                                            Proto => 'udp')
        or die "udp: $!\n";
    $self->{address} = '127.0.0.1:' . $self->{socket}->sockport;

    return $self;
}


sub address { return $_[0]{address} }


sub start {
    my ($self) = @_;

    $self->{child} = IapGuard::Child->start(sub {
        my ($gone) = @_;
        my $loop = IapGuard::Loop->new;
        my $done = 0;

        $loop->on_read($gone, sub { $done = 1 });
        $loop->on_read($self->{socket}, sub { $self->_answer });
        $loop->run_until(sub { $done });

        return 0;
    });
    close delete $self->{socket};

    return $self;
}


sub _answer {
    my ($self) = @_;

    my $from = $self->{socket}->recv(my $query, 512);
    my ($id, $question) = (substr($query, 0, 2), substr $query, 12);
    my $at = 0;
    my @labels;

    while (my $length = ord substr $question, $at, 1) {
        push @labels, substr $question, $at + 1, $length;
        $at += 1 + $length;
    }

    my $name = join '.', @labels;
    my $type = unpack 'n', substr $question, $at + 1, 2;

    return if $name eq 'hole.test';

    my $known = $ADDRESSES{$name};
    my @found = $known && $type == 1 ? @$known : ();
    my $answer = $id . pack('n5', $known ? 0x8180 : 0x8183, 1,
                            scalar @found, 0, 0)
                 . substr $question, 0, $at + 5;

    foreach my $address (@found) {
        $answer .= pack 'n3Nn C4', 0xc00c, 1, 1, 60, 4, split /\./, $address;
    }

    sleep $self->{delay};
    $self->{socket}->send($answer, 0, $from);

    return;
}


1;
