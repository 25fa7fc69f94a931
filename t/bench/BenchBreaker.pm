package BenchBreaker;

# The bench's rows of a breaker: an upstream's answer of 4 KB that passes
# through proxy_pass, with nothing, with a breaker that looks at its status,
# and with one that reads its JSON as "apple".
#
#   my $breaker = BenchBreaker->new(site => \%site, cpu => $wrk_cpu);
#   my @rows = $breaker->rows;
#   my @targets = $breaker->targets;    # as BenchRun->print_targets takes them
#
# The upstream is an nginx as well, on wrk's processor, and connections to it
# are kept: then a call costs least, and what is added shows most.

use strict;
use warnings;

use JSON::PP ();

use IapGuard::Nginx;

use constant BYTES => 4096;

my $BREAKER = 'failures=50% min=20 window=10s open=10s probes=5 '
              . 'slow=3s slow_ratio=80% inflight=200';


sub new {
    my ($class, %options) = @_;
    my $self = bless { %options }, $class;

    my $upstream = $self->{upstream} = IapGuard::Nginx->new(
        %{ $self->{site} }, cpu => $self->{cpu},
        http => '    iap_guard_zone  iap 1m;');

    $upstream->configure(server => <<"END");
        root             @{[ $upstream->folder ]};
        open_file_cache  max=10;
        default_type     application/json;

        location ~ ^/(?<answer>[a-z]+)\$ { try_files /\$answer.json =404; }
END

    $self->_answer($_) foreach qw(many long);
    $upstream->start;

    return $self;
}


# What verifyReceipt answers: a list of purchases of many short strings, and
# what is left of 4 KB as the long one that a receipt itself is.  "many": as
# many purchases as there is room for; "long": one.

sub _answer {
    my ($self, $name) = @_;
    my $json = JSON::PP->new->canonical;
    my %answer = (status => 0, environment => 'Production',
                  latest_receipt => '',
                  receipt => { receipt_type => 'Production',
                               bundle_id => 'com.example.app',
                               in_app => [] });
    my $text = '';

    for my $i (1 .. ($name eq 'many' ? 100 : 1)) {
        push @{ $answer{receipt}{in_app} }, _purchase($i);
        my $longer = $json->encode(\%answer);
        last if length $longer > BYTES;
        $text = $longer;
    }

    my $fill = 'A' x (BYTES - length $text);
    $text =~ s/"latest_receipt":"/$&$fill/;

    open my $file, '>', $self->{upstream}->file("$name.json")
        or die "the upstream's answer: $!\n";
    print $file $text;
    close $file or die "the upstream's answer: $!\n";

    return;
}


sub _purchase {
    my ($i) = @_;

    return {
        quantity                => '1',
        product_id              => 'com.example.app.month',
        transaction_id          => sprintf('10000000000000%02d', $i),
        original_transaction_id => '1000000000000001',
        purchase_date           => '2024-01-02 03:04:05 Etc/GMT',
        purchase_date_ms        => '1704164645000',
        purchase_date_pst       => '2024-01-01 19:04:05 America/Los_Angeles',
        expires_date            => '2024-02-02 03:04:05 Etc/GMT',
        expires_date_ms         => '1706843045000',
        web_order_line_item_id  => sprintf('1000000000000%03d', $i),
        is_trial_period         => 'false',
        is_in_intro_offer_period => 'false',
        in_app_ownership_type   => 'PURCHASED',
    };
}


# A proxy, not started yet, with a location for each answer and each way.

sub site {
    my ($self) = @_;
    my $locations = '';

    foreach my $answer (qw(many long)) {
        foreach my $breaker ('', 'http', 'apple') {
            my $directive = $breaker ? "iap_guard_breaker $breaker;" : '';

            $locations .= <<"END";
        location = /$answer/$breaker {
            $directive
            proxy_pass  http://upstream/$answer;
        }
END
        }
    }

    return IapGuard::Nginx->new(%{ $self->{site} },
        http => <<"END", server => $locations);
    iap_guard_zone     iap 1m;
    iap_guard_breaker  http  $BREAKER;
    iap_guard_breaker  apple $BREAKER classify=apple;

    upstream upstream {
        server     127.0.0.1:@{[ $self->{upstream}->port ]};
        keepalive  128;
    }

    proxy_http_version  1.1;
    proxy_set_header    Connection "";
END
}


sub rows {
    my ($self) = @_;
    return $self->rows_of($self->{running} = $self->site->start);
}


sub rows_of {
    my ($self, $site) = @_;
    my %is = (many => '200 short strings', long => 'a long string');

    return map {
        my $answer = $_;
        map { {
            id => "$answer$_->[0]", site => $site, send => {},
            path => "/$answer/$_->[0]",
            name => "4 KB, $is{$answer}, $_->[1]",
        } } (['', 'plain'], ['http', 'breaker'], ['apple', 'apple']);
    } qw(many long);
}


# That calls were taken for what they are: all but those that were under way
# when wrk left.

sub check {
    my ($self) = @_;

    foreach my $breaker (qw(http apple)) {
        my $is = $self->{running}->api_json('GET', "breakers/$breaker");
        my %outcomes = %{ $is->{outcomes} };
        my @others = grep { $outcomes{$_} && !/^(?:success|neutral)$/ }
                          sort keys %outcomes;

        die "breaker $breaker: $outcomes{$others[0]} of $others[0]\n"
            if @others;
        die "breaker $breaker: no successes\n" if !$outcomes{success};
    }

    return;
}


sub targets {
    my $above = sub { $_[0]{nginx} - $_[1]{nginx} };

    return (
        { name => '"apple", 4 KB of short strings: us above plain proxy_pass',
          at_most => 3, rows => [qw(manyapple many)], of => $above },
        { name => '"apple", 4 KB, a long string: us above plain proxy_pass',
          at_most => 3, rows => [qw(longapple long)], of => $above },
        { name => 'a breaker without a look at the body: us above that',
          rows => [qw(manyhttp many)], of => $above },
    );
}


1;
