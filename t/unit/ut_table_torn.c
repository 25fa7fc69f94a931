/*
 * Entries that are moved in the table, and bans that are written, seen after
 * each instruction: a process killed there must not leave a key whose limit
 * looks fresh, nor a ban that is half somebody else's.
 */

#include "iap_ban.h"
#include "iap_distinct.h"
#include "ut_step.h"


/* a table of four sets: a key has one of the first two, one of the others */

#define SETS     4
#define ENTRIES  (SETS * IAP_TABLE_WAYS)
#define IDS      4000

#define NOW      100
#define PASSED   50


typedef struct {
    iap_table_t  table;
    uint32_t     stride;
    iap_ticks_t  until[IDS];    /* of live keys */
    uint64_t     id;            /* that is to find room */
    iap_ban_t    before;        /* of bans */
    iap_ban_t    after;
    unsigned     lost;
    unsigned     garbled;
    unsigned     torn;
} world_t;


static void test_move(uint32_t stride, uint32_t room);
static void move_run(void *data);
static void move_look(void *data);
static void test_ban(bool again);
static void ban_run(void *data);
static void ban_look(void *data);
static void world_init(world_t *w, uint32_t stride, uint32_t room);
static void entry_write(const world_t *w, iap_entry_t *e, uint64_t id,
    iap_ticks_t until);
static bool entry_is(const world_t *w, const iap_entry_t *e, uint64_t id);
static uint32_t set_of(uint64_t id, bool second);
static uint64_t id_of(uint32_t first, uint32_t second, uint64_t after);
static iap_hash_t key_of(uint64_t id);


int
main(void)
{
    uint32_t  room;

    for (room = 0; room < SETS; room++) {
        test_move(sizeof(iap_entry_t), room);
        test_move(sizeof(iap_segment_t), room);
        test_move(sizeof(iap_ban_t), room);
    }

    test_ban(false);
    test_ban(true);

    return ut_done();
}


/* the only room is in a set that is not the new key's */

static void
test_move(uint32_t stride, uint32_t room)
{
    world_t    w;
    ut_step_t  s;

    world_init(&w, stride, room);

    memset(&s, 0, sizeof(s));
    s.run = move_run;
    s.look = move_look;
    s.data = &w;
    s.mem = w.table.base;
    s.size = (size_t) ENTRIES * stride;

    if (!ut_step(&s)) {
        ut_skip("no process may be traced here");
        munmap(w.table.base, s.size);
        return;
    }

    ut_ok(s.changes > 1 && s.steps > s.changes,
          "of %u bytes, to set %u: %u changes seen in %u steps", stride, room,
          s.changes, s.steps);
    ut_ok(w.lost == 0, "no key is lost, nor looks passed (%u times)", w.lost);
    ut_ok(w.garbled == 0, "nor has what another one knows (%u times)",
          w.garbled);

    munmap(w.table.base, s.size);
}


static void
move_run(void *data)
{
    world_t            *w = data;
    iap_table_chosen_t  chosen;

    chosen.n = 0;
    (void) iap_table_choose(&w->table, key_of(w->id), NOW, &chosen);
}


/* as whoever comes next would see it */

static void
move_look(void *data)
{
    world_t            *w = data;
    uint64_t            id;
    const iap_entry_t  *e;

    for (id = 0; id < IDS; id++) {

        if (w->until[id] == 0) {
            continue;
        }

        e = iap_table_find(&w->table, key_of(id));

        if (e == NULL || e->until != w->until[id]) {
            w->lost++;

        } else if (!entry_is(w, e, id)) {
            w->garbled++;
        }
    }
}


/* a ban in the place of one that has passed; `again`: of the same subject */

static void
test_ban(bool again)
{
    world_t     w;
    unsigned    i;
    iap_ban_t  *mem;
    ut_step_t   s;

    memset(&w, 0, sizeof(w));

    mem = ut_shared(IAP_TABLE_WAYS * sizeof(iap_ban_t));
    iap_table_init(&w.table, mem, IAP_TABLE_WAYS * sizeof(iap_ban_t),
                   sizeof(iap_ban_t));

    w.before.entry.key = key_of(again ? 2 : 1);
    w.before.entry.until = PASSED;
    w.before.guard = 7;
    w.before.layer = 8;
    w.before.key_len = 64;
    memset(w.before.key, 'x', 64);

    w.after.entry.key = key_of(2);
    w.after.entry.until = 900;
    w.after.guard = 3;
    w.after.layer = 4;
    w.after.changed = NOW;
    w.after.here = 1;
    w.after.key_len = 14;
    memset(w.after.key, 'x', 64);
    memcpy(w.after.key, "203.0.113.0/24", 14);

    mem[0] = w.before;

    /* what has passed first is taken */

    for (i = 1; i < IAP_TABLE_WAYS; i++) {
        mem[i].entry.until = PASSED + 1;
    }

    memset(&s, 0, sizeof(s));
    s.run = ban_run;
    s.look = ban_look;
    s.data = &w;
    s.mem = mem;
    s.size = IAP_TABLE_WAYS * sizeof(iap_ban_t);

    if (!ut_step(&s)) {
        ut_skip("no process may be traced here");
        munmap(mem, s.size);
        return;
    }

    ut_ok(s.changes > 1, "a ban %s: %u changes seen in %u steps",
          again ? "anew" : "in another's place", s.changes, s.steps);
    ut_ok(memcmp(&mem[0], &w.after, sizeof(iap_ban_t)) == 0,
          "it is in place in the end");
    ut_ok(w.torn == 0, "and shows nothing before it is whole (%u times)",
          w.torn);

    munmap(mem, s.size);
}


static void
ban_run(void *data)
{
    bool               is_new;
    world_t           *w = data;
    iap_ticks_t        until;
    iap_ban_subject_t  subject;

    subject.hash = w->after.entry.key;
    subject.guard = w->after.guard;
    subject.layer = w->after.layer;
    subject.by_hand = w->after.by_hand;
    subject.key.data = w->after.key;
    subject.key.len = w->after.key_len;

    until = w->after.entry.until;

    (void) iap_ban_put(&w->table, &subject, NULL, &until, NOW, &is_new);
}


/* whoever reads without the lock shows what has not passed */

static void
ban_look(void *data)
{
    unsigned          i;
    world_t          *w = data;
    const iap_ban_t  *ban;

    for (i = 0; i < IAP_TABLE_WAYS; i++) {
        ban = (const iap_ban_t *) (void *) iap_table_entry(&w->table, i);

        if (ban->entry.until > NOW
            && memcmp(ban, &w->after, sizeof(iap_ban_t)) != 0)
        {
            w->torn++;
        }
    }
}


/* all live but the fourth entry of one set, which has passed */

static void
world_init(world_t *w, uint32_t stride, uint32_t room)
{
    uint32_t      i, set;
    uint64_t      id;
    iap_entry_t  *e;

    memset(w, 0, sizeof(*w));

    w->stride = stride;
    iap_table_init(&w->table, ut_shared((size_t) ENTRIES * stride),
                   (size_t) ENTRIES * stride, stride);

    w->id = id_of(room < 2 ? 1 - room : 0, room < 2 ? 2 : 5 - room, 0);
    id = w->id;

    for (i = 0; i < ENTRIES; i++) {
        set = i / IAP_TABLE_WAYS;
        id = set < 2 ? id_of(set, 2 + i % 2, id) : id_of(i % 2, set, id);
        e = (iap_entry_t *) (void *) (w->table.base + (size_t) i * stride);

        if (id >= IDS) {
            abort();
        }

        entry_write(w, e, id, i == room * IAP_TABLE_WAYS + 3 ? PASSED
                                                            : 500 + i);
        w->until[id] = e->until > NOW ? e->until : 0;
    }
}


/* what is behind the moment says whose it is, too */

static void
entry_write(const world_t *w, iap_entry_t *e, uint64_t id, iap_ticks_t until)
{
    uint32_t  i;

    e->key = key_of(id);
    e->until = until;

    for (i = sizeof(iap_entry_t); i < w->stride; i += 8) {
        memcpy((uint8_t *) e + i, &id, 8);
    }
}


static bool
entry_is(const world_t *w, const iap_entry_t *e, uint64_t id)
{
    uint32_t  i;

    for (i = sizeof(iap_entry_t); i < w->stride; i += 8) {
        if (memcmp((const uint8_t *) e + i, &id, 8) != 0) {
            return false;
        }
    }

    return true;
}


/* the sets of a key, from what it is given in an empty table */

static uint32_t
set_of(uint64_t id, bool second)
{
    unsigned            i;
    size_t              offset;
    iap_table_t         t;
    iap_entry_t         mem[ENTRIES];
    iap_table_chosen_t  chosen;

    memset(mem, 0, sizeof(mem));
    iap_table_init(&t, mem, sizeof(mem), sizeof(iap_entry_t));

    chosen.n = 0;

    for (i = 0; i < 2 * IAP_TABLE_WAYS; i++) {
        iap_table_choose(&t, key_of(id), 1, &chosen);
    }

    offset = (size_t) (chosen.entry[second ? 2 * IAP_TABLE_WAYS - 1 : 0]
                       - mem);

    return (uint32_t) (offset / IAP_TABLE_WAYS);
}


static uint64_t
id_of(uint32_t first, uint32_t second, uint64_t after)
{
    do {
        after++;
    } while (set_of(after, false) != first || set_of(after, true) != second);

    return after;
}


static iap_hash_t
key_of(uint64_t id)
{
    uint64_t    state;
    iap_hash_t  key;

    state = id * 2;
    key.hi = ut_random(&state);
    key.lo = ut_random(&state);

    return key;
}
