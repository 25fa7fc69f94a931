# GET status and guards: valid JSON, whose numbers add up.

use strict;
use warnings;

use JSON::PP qw(decode_json);

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('user_files', ">>> token\nopen-sesame\n");
    $block->set_value('config', '
    location /api/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
    }
    location /t {
        iap_guard g;
        iap_guard_segment users=3 ban=1h window=1h address=$arg_ip;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_device $arg_d capacity=5 rate=1r/h missing=reject;
        iap_guard_bucket app $arg_a capacity=3 rate=1r/h dry_run=on;
        iap_guard_global rate=9r/d window=1d;
        empty_gif;
    }
    location /other {
        iap_guard other dry_run=on;
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        empty_gif;
    }
    ' . ($block->config // ''));
});


# whether a guard's numbers add up: an empty text, or what does not

sub sums {
    my ($guard) = @_;
    my $r = $guard->{requests};
    my ($rejections, $dry_run) = (0, 0);

    $rejections += $_ foreach values %{ $guard->{rejections} };
    $dry_run += $_ foreach values %{ $guard->{dry_run_rejections} };

    my $refused = $r->{limited} + $r->{banned} + $r->{unavailable} + $r->{error};
    my $would = $r->{limited_dry_run} + $r->{banned_dry_run}
        + $r->{unavailable_dry_run} + $r->{error_dry_run};

    return "$refused refused, but $rejections rejections\n"
        if $refused != $rejections;

    # one request may be refused by several layers in dry run

    return "$would would be refused, but $dry_run dry run rejections\n"
        if $would > $dry_run;

    return "$guard->{bans} bans of $guard->{bans_total}\n"
        if $guard->{bans} > $guard->{bans_total};

    return '';
}

sub total {
    my ($guard) = @_;
    my $total = 0;

    $total += $_ foreach values %{ $guard->{requests} };

    return $total;
}

run_tests();

__DATA__

=== TEST 1: before anything has happened
--- request
GET /api/status
--- response_body_filters eval
sub {
    my $status = JSON::PP::decode_json($_[0]);
    my $guards = $status->{guards};
    return CORE::join "\n",
        CORE::join(" ", CORE::sort keys %$status),
        $status->{version} =~ /^\d+\.\d+\.\d+$/ ? "version" : $status->{version},
        $status->{nginx} =~ /^\d+\.\d+\.\d+/ ? "nginx" : $status->{nginx},
        $status->{store}{kind},
        $status->{zone}{name} =~ /^test_\d+$/ ? "zone" : $status->{zone}{name},
        $status->{zone}{size},
        CORE::join(" ", CORE::sort keys %{ $status->{zone}{kinds} }),
        CORE::join(" ", map { $_->{used} } values %{ $status->{zone}{kinds} }),
        CORE::join(" ", CORE::sort keys %$guards),
        CORE::join(" ", CORE::sort keys %{ $guards->{g}{rejections} }),
        CORE::join(" ", CORE::sort keys %{ $guards->{other}{rejections} }),
        CORE::join(" ", map { main::total($_) } values %$guards),
        CORE::join(" ", map { main::sums($_) } values %$guards),
        scalar @{ $status->{bans} };
}
--- response_body chomp
bans breakers guards nginx queues store version zone
version
nginx
zone
zone
1048576
bans buckets denied members segments
0 0 0 0 0
g other
app ban device global segment user
ban segment user
0 0
 
0



=== TEST 2: after one of everything
--- request eval
[map({ "GET /t?$_" } "u=1&d=1&a=1&ip=10.0.0.1", "u=1&d=1&a=1&ip=10.0.0.1",
    "u=1&d=1&a=1&ip=10.0.0.1", "u=1", "u=2&d=2&a=1&ip=10.0.0.1",
    "u=3&d=2&a=1&ip=10.0.0.1", "u=4&d=2&ip=10.0.0.1", "u=1&d=1&ip=10.0.0.1",
    "u=5&d=1&a=2&ip=10.0.0.2", "u=6&d=1&a=2&ip=10.0.0.2",
    "u=7&d=1&a=2&ip=10.0.0.3", "u=8&d=1&a=3&ip=10.0.0.4",
    "u=9&d=9&a=4&ip=10.0.0.9", "u=10&d=9&a=4&ip=10.0.0.10",
    "u=11&d=9&a=5&ip=10.0.0.11"),
 "GET /other?u=1", "GET /other?u=1", "GET /api/status", "GET /api/guards/g",
 "GET /api/guards"]
--- error_code eval
[200, 200, 429, 400, 200, 200, 429, 429, 200, 200, 200, 429, 200, 200, 429, 200,
 200, 200, 200, 200]
--- response_body_filters eval
sub {
    return "" if $_[0] !~ /^\{/ || $_[0] =~ /^\{"error/;
    my $json = JSON::PP::decode_json($_[0]);
    my $guards = $json->{guards} || ($json->{guard} ? { g => $json } : $json);
    my $g = $guards->{g};
    my $r = $g->{requests};
    return CORE::join "",
        "total ", main::total($g), "\n", main::sums($g),
        CORE::join(", ", map { "$_ $r->{$_}" } grep { $r->{$_} } CORE::sort keys %$r),
        "\n", CORE::join(", ", map { "$_ $g->{rejections}{$_}" }
            grep { $g->{rejections}{$_} } CORE::sort keys %{ $g->{rejections} }),
        "\n", CORE::join(", ", map { "$_ $g->{dry_run_rejections}{$_}" }
            grep { $g->{dry_run_rejections}{$_} }
            CORE::sort keys %{ $g->{dry_run_rejections} }),
        "\nbans $g->{bans} of $g->{bans_total}\n",
        $json->{bans} && ref $json->{bans} ? scalar(@{ $json->{bans} }) . " listed\n" : "";
}
--- response_body eval
my $g = 'total 15
banned 1, error 1, limited 4, limited_dry_run 1, passed 8
ban 1, device 2, global 1, segment 1, user 1
app 1
bans 1 of 1
';
[("") x 17, $g . "1 listed\n", $g, $g]



=== TEST 3: the zone's use rises and is bounded by its size
--- no_http2
--- init
    main::http_raw(join('', map {
        "GET /t?u=u$_&d=d&a=1&ip=10.0." . $_ % 256 . ".1 HTTP/1.1\r\nHost: x\r\n\r\n"
    } 1 .. 9) . "GET /end HTTP/1.0\r\n\r\n");
--- request
GET /api/status
--- response_body_filters eval
sub {
    my $kinds = JSON::PP::decode_json($_[0])->{zone}{kinds};
    my $sum = 0;
    $sum += $_->{size} foreach values %$kinds;
    return CORE::join " ", $sum <= 1048576 ? "within" : $sum,
        $sum > 800000 ? "most" : $sum,
        (grep { $_->{used} > $_->{size} } values %$kinds) ? "over" : "below";
}
--- response_body chomp
within most below



=== TEST 4: a list of bans in status is bounded, and that in bans is longer
--- no_http2
--- init
    foreach my $n (1 .. 60) {
        my $body = '{"guard":"g","layer":"user","key":"u' . $n . '","seconds":600}';
        main::http_raw("POST /api/bans HTTP/1.0\r\nAuthorization: Bearer open-sesame"
            . "\r\nContent-Length: " . length($body) . "\r\n\r\n$body");
    }
--- request eval
["GET /api/bans", "GET /api/status", "GET /api/guards/g"]
--- error_code eval
[200, 200, 200]
--- response_body_filters eval
sub {
    my $json = JSON::PP::decode_json($_[0]);
    return ref $json eq "ARRAY" ? scalar @$json
        : ref $json->{bans} ? scalar @{ $json->{bans} } : $json->{bans};
}
--- response_body eval
[60, 60, 60]



=== TEST 5: many guards with the longest names, and all their layers
--- config eval
CORE::join "", map {
    my $guard = CORE::sprintf "%064d", $_;
    "location /many$_ { iap_guard $guard; iap_guard_user \$arg_u; "
    . CORE::join("", map { CORE::sprintf "iap_guard_bucket %032d \$arg_b "
        . "capacity=1 rate=1r/s;", $_ } 1 .. 23)
    . " empty_gif; }"
} 1 .. 40
--- request eval
["GET /api/status", "GET /api/guards", "GET /api/guards/" . "0" x 62 . "40"]
--- error_code eval
[200, 200, 200]
--- response_body_filters eval
sub {
    my $json = JSON::PP::decode_json($_[0]);
    my $guards = $json->{guards} || $json;
    my $guard = $guards->{"0" x 62 . "40"} || $json;
    return CORE::scalar(keys %{ $guard->{rejections} }) . " layers";
}
--- response_body eval
[("26 layers") x 3]
