/* Which answer is right, where those who were asked differ. */

#include "ut.h"
#include "iap_vote.h"


#define VOTES  6

#define NO     IAP_VOTE_NONE


/* what each says, "a" to "f" for the first vote that says so, and what it said
   a moment ago, or "." */

static const struct {
    const char  *name;
    const char  *says;
    const char  *left;
    const char  *epochs;        /* a digit each */
    char         known;
    const char  *order;
    bool         tied;
} cases[] = {
    { "nobody",               "",      "",      "",      '.', "",    false },
    { "one",                  "a",     ".",     "0",     '.', "a",   false },
    { "all the same",         "aaa",   "...",   "000",   'a', "a",   false },

    /* a stale one, first or last, does not count against the others */

    { "most, behind",         "abb",   "...",   "000",   '.', "ba",  false },
    { "most, before",         "aac",   "...",   "000",   '.', "ac",  false },
    { "most, not the known",  "abb",   "...",   "000",   'a', "ba",  false },
    { "most, lower epochs",   "abb",   "...",   "911",   'a', "ba",  false },
    { "three of five",        "abbba", ".....", "90009", 'a', "ba",  false },

    /* as many */

    { "a tie: the first",     "ab",    "..",    "00",    '.', "ab",  true },
    { "a tie: the known",     "ab",    "..",    "00",    'b', "ba",  true },
    { "a tie: its epoch",     "ab",    "..",    "12",    'a', "ba",  true },
    { "a tie: one epoch",     "ab",    "..",    "01",    'a', "ba",  true },
    { "a tie: same epochs",   "ab",    "..",    "33",    'b', "ba",  true },
    { "two and two",          "abab",  "....",  "0702",  'a', "ba",  true },
    { "each its own",         "abc",   "...",   "132",   '.', "bca", true },
    { "a tie behind",         "aacd",  "....",  "0012",  '.', "adc", false },

    /* who has left what the others still say knows more than they do */

    { "news, one of two",     "ab",    ".a",    "00",    'a', "ba",  false },
    { "news, one of three",   "aac",   "..a",   "000",   'a', "ca",  false },
    { "news, the first one",  "abb",   "b..",   "055",   'b', "ab",  false },
    { "news, two of five",    "abbaa", ".aa..", "00000", 'a', "ba",  false },
    { "news of none here",    "abb",   "...",   "000",   'b', "ba",  false },
    { "news and a third",     "abcb",  "b...",  "0000",  'b', "acb", true },
    { "left for each other",  "abb",   "ba.",   "000",   'a', "ba",  false },
    { "likewise, a tie",      "ab",    "ba",    "34",    'a', "ba",  true },

    /* ... unless they are more, and their epoch says that they do not */

    { "news, and newer",      "aac",   "..a",   "223",   'a', "ca",  false },
    { "news, and older",      "aac",   "..a",   "221",   'a', "ac",  false },
    { "news, of old",         "aac",   "..a",   "222",   'a', "ac",  false },
    { "news, older than one", "aac",   "..a",   "132",   'a', "ac",  false },
    { "news, not told",       "aac",   "..a",   "220",   'a', "ca",  false },
    { "news, not theirs",     "aac",   "..a",   "001",   'a', "ca",  false },
    { "older, but as many",   "ab",    ".a",    "21",    'a', "ba",  false },
    { "older, by two",        "abbaa", ".aa..", "22122", 'a', "ab",  false },
    { "one is newer",         "abbaa", ".aa..", "22322", 'a', "ba",  false },
    { "older, of one's own",  "abcb",  "b...",  "1232",  'b', "bca", false },
};


static const struct {
    const char  *says;
    const char  *left;
    bool         news;
} news[] = {
    { "",      "",      false },
    { "aac",   "...",   false },
    { "aac",   "..a",   true },
    { "abb",   "b..",   true },
    { "abb",   ".a.",   false },
    { "ab",    ".a",    false },
    { "abbaa", ".aa..", true },
    { "abcb",  "...a",  false },
};


static uint32_t
letter(char c)
{
    return c >= 'a' && c <= 'f' ? (uint32_t) (c - 'a') : NO;
}


static size_t
read_votes(iap_vote_t *votes, const char *says, const char *left,
    const char *epochs)
{
    size_t  i, n;

    n = strlen(says);

    for (i = 0; i < n; i++) {
        votes[i].choice = letter(says[i]);
        votes[i].left = letter(left[i]);
        votes[i].epoch = epochs ? (uint64_t) (epochs[i] - '0') : 0;
    }

    return n;
}


static void
orders(void)
{
    bool        tied;
    char        text[VOTES + 1];
    size_t      i, k, n, count;
    uint32_t    order[VOTES];
    iap_vote_t  votes[VOTES];

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        n = read_votes(votes, cases[i].says, cases[i].left, cases[i].epochs);

        count = iap_vote_order(votes, n, letter(cases[i].known), order,
                               &tied);

        for (k = 0; k < count; k++) {
            text[k] = (char) ('a' + order[k]);
        }

        text[count] = '\0';

        ut_ok(strcmp(text, cases[i].order) == 0 && tied == cases[i].tied,
              "%s: %s%s", cases[i].name, text, tied ? ", tied" : "");
    }
}


/* whether epochs are of use */

static void
is_news(void)
{
    size_t      i, n;
    iap_vote_t  votes[VOTES];

    for (i = 0; i < sizeof(news) / sizeof(news[0]); i++) {
        n = read_votes(votes, news[i].says, news[i].left, NULL);

        ut_ok(iap_vote_is_news(votes, n) == news[i].news,
              "news: \"%s\", left \"%s\"", news[i].says, news[i].left);
    }
}


/* beyond 32 bits */

static void
large_epochs(void)
{
    bool        tied;
    uint32_t    order[2];
    iap_vote_t  votes[2] = { { 0, NO, UINT64_MAX - 1 },
                             { 1, NO, UINT64_MAX } };

    ut_ok(iap_vote_order(votes, 2, 0, order, &tied) == 2 && order[0] == 1,
          "the largest epoch");
}


int
main(void)
{
    orders();
    is_news();
    large_epochs();

    return ut_done();
}
