package IapGuard::StandInBackend;

# A stand-in for the team's own redeem service: every call is a success,
# {"status":"redeemed"}, until it is told otherwise.  IapGuard::StandIn says
# what it can be told, and what it counts.

use strict;
use warnings;

use parent 'IapGuard::StandIn';


sub name { return 'backend' }
sub good { return { status => 'redeemed' } }


1;
