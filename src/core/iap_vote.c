/*
 * Which answer is right.
 */

#include "iap_vote.h"


typedef struct {
    bool      left;             /* by one who says something else now */
    size_t    votes;
    uint64_t  epoch;            /* the highest */
} iap_vote_weight_t;


static iap_vote_weight_t iap_vote_weigh(const iap_vote_t *votes, size_t n,
    uint32_t choice);
static iap_vote_weight_t iap_vote_count(const iap_vote_t *votes, size_t n,
    uint32_t choice);
static bool iap_vote_is_refuted(const iap_vote_t *votes, size_t n,
    const iap_vote_t *news);
static bool iap_vote_is_better(const iap_vote_t *votes, size_t n,
    uint32_t known, uint32_t choice, uint32_t than);


size_t
iap_vote_order(const iap_vote_t *votes, size_t n, uint32_t known,
    uint32_t *order, bool *tied)
{
    size_t             i, k, count;
    iap_vote_weight_t  first, second;

    count = 0;

    for (i = 0; i < n; i++) {

        if (votes[i].choice != i) {
            continue;
        }

        for (k = count; k > 0; k--) {

            if (!iap_vote_is_better(votes, n, known, (uint32_t) i,
                                    order[k - 1]))
            {
                break;
            }

            order[k] = order[k - 1];
        }

        order[k] = (uint32_t) i;
        count++;
    }

    *tied = false;

    if (count > 1) {
        first = iap_vote_weigh(votes, n, order[0]);
        second = iap_vote_weigh(votes, n, order[1]);

        *tied = first.left == second.left && first.votes == second.votes;
    }

    return count;
}


static bool
iap_vote_is_better(const iap_vote_t *votes, size_t n, uint32_t known,
    uint32_t choice, uint32_t than)
{
    iap_vote_weight_t  a, b;

    a = iap_vote_weigh(votes, n, choice);
    b = iap_vote_weigh(votes, n, than);

    if (a.left != b.left) {
        return b.left;
    }

    if (a.votes != b.votes) {
        return a.votes > b.votes;
    }

    if (a.epoch != b.epoch) {
        return a.epoch > b.epoch;
    }

    return choice == known;
}


static iap_vote_weight_t
iap_vote_weigh(const iap_vote_t *votes, size_t n, uint32_t choice)
{
    size_t             i;
    iap_vote_weight_t  w;

    w = iap_vote_count(votes, n, choice);

    for (i = 0; i < n; i++) {

        if (votes[i].left == choice
            && !iap_vote_is_refuted(votes, n, &votes[i]))
        {
            w.left = true;
        }
    }

    return w;
}


/* whether it was left is not looked at */

static iap_vote_weight_t
iap_vote_count(const iap_vote_t *votes, size_t n, uint32_t choice)
{
    size_t             i;
    iap_vote_weight_t  w;

    w.left = false;
    w.votes = 0;
    w.epoch = 0;

    for (i = 0; i < n; i++) {

        if (votes[i].choice != choice) {
            continue;
        }

        w.votes++;

        if (votes[i].epoch > w.epoch) {
            w.epoch = votes[i].epoch;
        }
    }

    return w;
}


/* by those that still say what was left */

static bool
iap_vote_is_refuted(const iap_vote_t *votes, size_t n, const iap_vote_t *news)
{
    iap_vote_weight_t  said, left;

    said = iap_vote_count(votes, n, news->choice);
    left = iap_vote_count(votes, n, news->left);

    return said.votes < left.votes && said.epoch != 0 && left.epoch != 0
           && said.epoch <= left.epoch;
}


bool
iap_vote_is_news(const iap_vote_t *votes, size_t n)
{
    size_t             i;
    iap_vote_weight_t  said, left;

    for (i = 0; i < n; i++) {

        if (votes[i].left == IAP_VOTE_NONE) {
            continue;
        }

        said = iap_vote_count(votes, n, votes[i].choice);
        left = iap_vote_count(votes, n, votes[i].left);

        if (said.votes < left.votes) {
            return true;
        }
    }

    return false;
}
