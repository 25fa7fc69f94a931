/*
 * Which answer is right, where those who were asked the same differ.
 *
 * First comes what nobody has left: whoever says something else than a moment
 * ago has learnt of a change, and those that still say the old thing have not,
 * however many.  Unless they are more, and their highest epoch, a number that
 * grows with each change, is no lower than that of the new thing: then it was
 * told something wrong.  (Two things that were left for each other are alike
 * in this.)  Then what most say; what is said with the highest epoch; what is
 * known already; and what was said first.
 */

#ifndef IAP_VOTE_H
#define IAP_VOTE_H

#include "iap_core.h"


#define IAP_VOTE_NONE  ((uint32_t) -1)


typedef struct {
    uint32_t  choice;           /* what is said: the index of the first vote
                                   that says the same */
    uint32_t  left;             /* likewise, what the same voter said a moment
                                   ago; IAP_VOTE_NONE: the same, or what nobody
                                   says now */
    uint64_t  epoch;            /* one more than it is, as that may be 0; 0: not
                                   known */
} iap_vote_t;


/*
 * All choices, the best one first, into order, which has room for n; returns
 * how many there are.  known: a choice, or IAP_VOTE_NONE.  *tied: as many say
 * the second as the first, so that epochs decide, if they are known.
 */

size_t iap_vote_order(const iap_vote_t *votes, size_t n, uint32_t known,
    uint32_t *order, bool *tied);

/* whether someone has left what more still say, so that epochs decide, if they
   are known */

bool iap_vote_is_news(const iap_vote_t *votes, size_t n);


#endif /* IAP_VOTE_H */
