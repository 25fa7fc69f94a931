package IapGuard::HTTPParser;

# Reads HTTP/1.x messages from bytes as they arrive: requests or responses,
# bodies by Content-Length, chunked, or (responses) up to the end of the
# connection.  Bytes behind a message stay for the next one (pipelining).
#
#   my $parser = IapGuard::HTTPParser->new('response');
#   $parser->add($bytes);
#   my $message = $parser->next_message;    # undef: not complete yet
#   my $last    = $parser->end;     # the peer closed; undef: nothing begun
#
# A request is { method, uri, version, headers, body }, a response
# { status, version, headers, body }.  Header names are lower case, several
# of one name are joined by ", ".  What is not HTTP dies with a line that
# begins with "bad HTTP: ".

use strict;
use warnings;

use constant {
    HEAD_MAX => 65_536,
    BODY_MAX => 16 * 1024 * 1024,
};


sub new {
    my ($class, $kind) = @_;
    return bless { kind => $kind, buffer => '', message => undef }, $class;
}


sub add {
    $_[0]{buffer} .= $_[1];     # by alias: no copy of a large piece
    return;
}


# The response that comes next answers a HEAD request.

sub expect_no_body {
    my ($self) = @_;
    $self->{no_body} = 1;
    return;
}


# The head that has been read while its body has not, or undef; servers look
# at it for "Expect: 100-continue".

sub begun {
    my ($self) = @_;
    return $self->{message};
}


# Whether bytes came that belong to no complete message.

sub pending {
    my ($self) = @_;
    return defined $self->{message} || length $self->{buffer};
}


sub next_message {
    my ($self) = @_;

    unless ($self->{message}) {
        $self->_head or return;
    }

    my $framing = $self->{framing};

    my $complete = $framing eq 'none'    ? 1
                 : $framing eq 'length'  ? $self->_by_length
                 : $framing eq 'chunked' ? $self->_by_chunks
                 :                         0;

    return $complete ? $self->_take : undef;
}


sub end {
    my ($self) = @_;

    return unless $self->pending;

    if ($self->{message} && $self->{framing} eq 'close') {
        $self->{message}{body} = $self->{buffer};
        $self->{buffer} = '';
        return $self->_take;
    }

    die "bad HTTP: cut short\n";
}


sub _take {
    my ($self) = @_;
    my $message = $self->{message};

    @{$self}{qw(message no_body)} = (undef, undef);

    return $message;
}


# Returns true when a head is complete; informational responses (1xx) are
# skipped.

sub _head {
    my ($self) = @_;

    while (1) {
        my $size = index $self->{buffer}, "\r\n\r\n";

        if ($size < 0) {
            die "bad HTTP: head too long\n"
                if length $self->{buffer} > HEAD_MAX;
            return 0;
        }

        my $head = substr $self->{buffer}, 0, $size + 4, '';
        my ($start, @lines) = split /\r\n/, $head;
        my $message = $self->_start_line($start);

        _headers($message, @lines);

        next if $self->{kind} eq 'response' && $message->{status} < 200;

        $self->{message} = $message;
        $self->_framing($message);
        return 1;
    }
}


sub _start_line {
    my ($self, $line) = @_;
    $line = '' unless defined $line;

    if ($self->{kind} eq 'request') {
        return { method => $1, uri => $2, version => $3 }
            if $line =~ m{^([A-Z]+) (\S+) HTTP/(1\.[01])$};

    } elsif ($line =~ m{^HTTP/(1\.[01]) ([0-9]{3})(?: |$)}) {
        return { status => $2, version => $1 };
    }

    die "bad HTTP: start line \"" . substr($line, 0, 80) . "\"\n";
}


sub _headers {
    my ($message, @lines) = @_;
    my %headers;

    foreach my $line (@lines) {
        $line =~ /^([^\s:]+):[ \t]*(.*?)[ \t]*$/
            or die "bad HTTP: header line \"" . substr($line, 0, 80) . "\"\n";

        my $name = lc $1;
        $headers{$name} = exists $headers{$name} ? "$headers{$name}, $2" : $2;
    }

    $message->{headers} = \%headers;
    $message->{body}    = '';

    return;
}


sub _framing {
    my ($self, $message) = @_;
    my $headers  = $message->{headers};
    my $response = $self->{kind} eq 'response';
    my $length   = $headers->{'content-length'};

    if ($self->{no_body}
        || ($response && ($message->{status} == 204
                          || $message->{status} == 304)))
    {
        $self->{framing} = 'none';

    } elsif (lc($headers->{'transfer-encoding'} || '') eq 'chunked') {
        @{$self}{qw(framing chunk)} = ('chunked', undef);

    } elsif (defined $length) {
        die "bad HTTP: Content-Length \"$length\"\n"
            unless $length =~ /^[0-9]{1,9}$/ && $length <= BODY_MAX;
        @{$self}{qw(framing left)} = ('length', $length);

    } else {
        $self->{framing} = $response ? 'close' : 'none';
    }

    return;
}


sub _by_length {
    my ($self) = @_;

    return 0 if length $self->{buffer} < $self->{left};

    $self->{message}{body} = substr $self->{buffer}, 0, $self->{left}, '';

    return 1;
}


# {chunk} is what is left of the present chunk with its CRLF; undef stands
# for "a size line comes", -1 for "trailers come".

sub _by_chunks {
    my ($self) = @_;
    my ($message, $buffer) = ($self->{message}, \$self->{buffer});

    while (1) {
        if (!defined $self->{chunk}) {
            $$buffer =~ s/^([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n//
                or return _wait_line($$buffer, 'chunk size');
            $self->{chunk} = hex($1) ? hex($1) : -1;
            die "bad HTTP: body too long\n"
                if length($message->{body}) + hex($1) > BODY_MAX;

        } elsif ($self->{chunk} < 0) {
            $$buffer =~ s/^([^\r\n]*)\r\n//
                or return _wait_line($$buffer, 'trailer');
            return 1 if $1 eq '';

        } else {
            my $size = $self->{chunk};
            return 0 if length $$buffer < $size + 2;
            $message->{body} .= substr $$buffer, 0, $size, '';
            substr($$buffer, 0, 2, '') eq "\r\n"
                or die "bad HTTP: no line end behind a chunk\n";
            $self->{chunk} = undef;
        }
    }
}


sub _wait_line {
    my ($buffer, $what) = @_;

    die "bad HTTP: $what\n"
        if length $buffer > HEAD_MAX || $buffer =~ /\n/;

    return 0;
}


1;
