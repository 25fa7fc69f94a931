/*
 * The log of bans: what was made on any machine comes in.
 */

#include "ngx_iap_ban_log_private.h"


/* entries read by one call */
#define NGX_IAP_BAN_LOG_READ    256

/* words of an entry in lua/bans.lua's reply, and those before the first */
#define NGX_IAP_BAN_LOG_WORDS   7
#define NGX_IAP_BAN_LOG_HEAD    2

/* "18446744073709551615-18446744073709551615" */
#define NGX_IAP_BAN_LOG_ID_MAX  41


/* by which clocks of workers, and a clock that is not looked at during a turn
   of the event loop, may be wrong */
#define NGX_IAP_BAN_LOG_SLACK   (100 * IAP_TICKS_PER_MS)

/* for which two servers may both have been written to while a replica took
   over, of which this machine has read one */
#define NGX_IAP_BAN_LOG_APART   (60 * IAP_TICKS_PER_SEC)


/* how an entry is made of words; texts are the reply's */

typedef struct {
    ngx_str_t              machine;
    ngx_str_t              guard;
    ngx_str_t              layer;
    ngx_str_t              key;
    iap_ticks_t            left;
    iap_ban_when_t         when;        /* it was written */
    unsigned               lift:1;
} ngx_iap_ban_entry_t;


static ngx_int_t ngx_iap_ban_log_head(redisReply *reply, uint64_t *ms,
    uint64_t *seq, ngx_uint_t *more);
static void ngx_iap_ban_log_ended(ngx_iap_ban_log_t *ban_log);
static ngx_int_t ngx_iap_ban_log_number(u_char **p, u_char *last,
    uint64_t *number);
static ngx_uint_t ngx_iap_ban_log_claim(ngx_iap_ban_log_t *ban_log,
    uint64_t ms, uint64_t seq);
static ngx_int_t ngx_iap_ban_log_entry(ngx_iap_ban_log_t *ban_log,
    redisReply **words, ngx_iap_ban_entry_t *entry);
static void ngx_iap_ban_log_apply(ngx_iap_ban_log_t *ban_log,
    ngx_iap_ban_entry_t *entry);
static void ngx_iap_ban_log_take(ngx_iap_ban_log_t *ban_log,
    ngx_iap_ban_entry_t *entry);


void
ngx_iap_ban_log_read(ngx_iap_ban_log_t *ban_log)
{
    ngx_iap_zone_store_t  *store;

    store = &ban_log->zone->head->store;

    ngx_shmtx_lock(&ban_log->zone->shpool->mutex);

    ban_log->read_ms = store->read_ms;
    ban_log->read_seq = store->read_seq;
    ban_log->told = ban_log->zone->head->bans_told;

    ngx_shmtx_unlock(&ban_log->zone->shpool->mutex);

    ban_log->reads = 1;
    ngx_iap_call_send(ban_log->redis, &ban_log->read);
}


void
ngx_iap_ban_log_read_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    u_char              id[NGX_IAP_BAN_LOG_ID_MAX];
    ngx_iap_ban_log_t  *ban_log;

    ban_log = ngx_queue_data(call, ngx_iap_ban_log_t, read);

    ngx_iap_args_key(args, &ban_log->key, NULL, 0);
    ngx_iap_args_bytes(args, id, ngx_sprintf(id, "%uL-%uL", ban_log->read_ms,
                                             ban_log->read_seq) - id);
    ngx_iap_args_number(args, NGX_IAP_BAN_LOG_READ);

    ban_log->asked = ngx_iap_now();
}


ngx_int_t
ngx_iap_ban_log_read_done(ngx_iap_call_t *call, redisReply *reply)
{
    size_t                i;
    uint64_t              ms, seq;
    ngx_uint_t            more;
    ngx_iap_ban_log_t    *ban_log;
    ngx_iap_ban_entry_t   entry;

    ban_log = ngx_queue_data(call, ngx_iap_ban_log_t, read);
    ban_log->reads = 0;

    if (ban_log->gone) {
        ngx_iap_ban_log_free(ban_log);
        return NGX_OK;
    }

    if (reply == NULL) {

        /* another worker's connection may be well */

        ban_log->zone->head->store.read_at = ngx_current_msec
                                             - NGX_IAP_BAN_LOG_DUE;
    }

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY) {
        return ngx_iap_ban_log_error(ban_log, reply, "read",
                                     &ban_log->unread);
    }

    if (ngx_iap_ban_log_head(reply, &ms, &seq, &more) != NGX_OK) {
        return NGX_ERROR;
    }

    ban_log->unread = 0;

    if (!ngx_iap_ban_log_claim(ban_log, ms, seq)) {
        return NGX_OK;
    }

    for (i = NGX_IAP_BAN_LOG_HEAD; i < reply->elements;
         i += NGX_IAP_BAN_LOG_WORDS)
    {
        if (ngx_iap_ban_log_entry(ban_log, &reply->element[i], &entry)
            == NGX_OK)
        {
            ngx_iap_ban_log_apply(ban_log, &entry);
        }
    }

    if (!more) {
        ngx_iap_ban_log_ended(ban_log);
    }

    if (more && !ngx_exiting) {
        ban_log->zone->head->store.read_at = ngx_current_msec;
        ngx_iap_ban_log_read(ban_log);
    }

    return NGX_OK;
}


/* the log's end was reached: what was there when it was asked for is known */

static void
ngx_iap_ban_log_ended(ngx_iap_ban_log_t *ban_log)
{
    ngx_iap_zone_head_t  *head;

    head = ban_log->zone->head;
    head->store.known_at = ngx_iap_ban_log_now();

    ngx_shmtx_lock(&ban_log->zone->shpool->mutex);

    head->bans_told = ngx_max(head->bans_told, ban_log->asked);

    ngx_shmtx_unlock(&ban_log->zone->shpool->mutex);
}


static ngx_int_t
ngx_iap_ban_log_head(redisReply *reply, uint64_t *ms, uint64_t *seq,
    ngx_uint_t *more)
{
    u_char      *p, *last;
    redisReply  *id;

    if (reply->elements < NGX_IAP_BAN_LOG_HEAD
        || (reply->elements - NGX_IAP_BAN_LOG_HEAD) % NGX_IAP_BAN_LOG_WORDS
           != 0
        || reply->element[0]->type != REDIS_REPLY_STRING
        || reply->element[1]->type != REDIS_REPLY_INTEGER)
    {
        return NGX_ERROR;
    }

    id = reply->element[0];
    p = (u_char *) id->str;
    last = p + id->len;

    if (ngx_iap_ban_log_number(&p, last, ms) != NGX_OK
        || p == last || *p++ != '-'
        || ngx_iap_ban_log_number(&p, last, seq) != NGX_OK
        || p != last)
    {
        return NGX_ERROR;
    }

    *more = reply->element[1]->integer != 0;

    return NGX_OK;
}


/* digits, of a number below 2^64 */

static ngx_int_t
ngx_iap_ban_log_number(u_char **p, u_char *last, uint64_t *number)
{
    u_char    *first;
    uint64_t   digit;

    *number = 0;

    for (first = *p; *p < last && **p >= '0' && **p <= '9'; (*p)++) {
        digit = **p - '0';

        if (*number > (UINT64_MAX - digit) / 10) {
            return NGX_ERROR;
        }

        *number = *number * 10 + digit;
    }

    return *p > first ? NGX_OK : NGX_ERROR;
}


/*
 * Whether the zone still stands where this reading began; then it goes on.
 * Of two readings that crossed only one is applied, and none is before a
 * later one.
 */

static ngx_uint_t
ngx_iap_ban_log_claim(ngx_iap_ban_log_t *ban_log, uint64_t ms, uint64_t seq)
{
    ngx_uint_t             ours;
    ngx_iap_zone_store_t  *store;

    store = &ban_log->zone->head->store;

    ngx_shmtx_lock(&ban_log->zone->shpool->mutex);

    ours = store->read_ms == ban_log->read_ms
           && store->read_seq == ban_log->read_seq;

    if (ours) {
        store->read_ms = ms;
        store->read_seq = seq;
    }

    ngx_shmtx_unlock(&ban_log->zone->shpool->mutex);

    return ours;
}


/* the script passes over what is malformed; but a node may be no Redis */

static ngx_int_t
ngx_iap_ban_log_entry(ngx_iap_ban_log_t *ban_log, redisReply **words,
    ngx_iap_ban_entry_t *entry)
{
    long long     left;
    ngx_str_t    *texts[NGX_IAP_BAN_LOG_WORDS - 2], op;
    ngx_uint_t    i;
    iap_ticks_t   age, heard;

    texts[0] = &entry->machine;
    texts[1] = &op;
    texts[2] = &entry->guard;
    texts[3] = &entry->layer;
    texts[4] = &entry->key;

    for (i = 0; i < NGX_IAP_BAN_LOG_WORDS - 2; i++) {

        if (words[i]->type != REDIS_REPLY_STRING) {
            return NGX_ERROR;
        }

        texts[i]->data = (u_char *) words[i]->str;
        texts[i]->len = words[i]->len;
    }

    if (words[i]->type != REDIS_REPLY_INTEGER
        || words[i + 1]->type != REDIS_REPLY_INTEGER
        || words[i + 1]->integer < 0
        || entry->key.len > IAP_KEY_TEXT_MAX)
    {
        return NGX_ERROR;
    }

    age = ngx_min((iap_ticks_t) words[i + 1]->integer,
                  NGX_IAP_BAN_MAX / IAP_TICKS_PER_MS)
          * IAP_TICKS_PER_MS;

    heard = ngx_iap_now() + NGX_IAP_BAN_LOG_SLACK;
    entry->when.latest = heard > age ? heard - age : 0;

    age += NGX_IAP_BAN_LOG_SLACK;
    entry->when.earliest = ban_log->asked > age ? ban_log->asked - age : 0;

    entry->lift = op.len == 4;

    if (entry->lift) {
        return NGX_OK;
    }

    left = words[i]->integer;

    if (left <= 0) {
        return NGX_ERROR;
    }

    entry->left = ngx_min((iap_ticks_t) left,
                          NGX_IAP_BAN_MAX / IAP_TICKS_PER_MS)
                  * IAP_TICKS_PER_MS;

    return NGX_OK;
}


static void
ngx_iap_ban_log_apply(ngx_iap_ban_log_t *ban_log, ngx_iap_ban_entry_t *entry)
{
    iap_view_t            view;
    ngx_iap_ban_filter_t  filter;

    if (!entry->lift) {
        ngx_iap_ban_log_take(ban_log, entry);
        return;
    }

    view.data = entry->key.data;
    view.len = entry->key.len;

    ngx_memzero(&filter, sizeof(ngx_iap_ban_filter_t));

    filter.guard = entry->guard;
    filter.layer = entry->layer;
    filter.any_key = (view.len == 0);
    filter.key = view;
    filter.when = &entry->when;
    filter.again = entry->when.latest + NGX_IAP_BAN_LOG_APART
                   <= ban_log->told;

    (void) iap_addr_parse_prefix(view, &filter.addr, &filter.bits);

    ngx_iap_bans_lift(ban_log->zone, &filter, ban_log->lifted, ban_log->data);
}


static void
ngx_iap_ban_log_take(ngx_iap_ban_log_t *ban_log, ngx_iap_ban_entry_t *entry)
{
    ngx_int_t              rc;
    iap_view_t             key;
    ngx_uint_t             here;
    iap_ticks_t            left;
    ngx_iap_slot_t        *slot;
    ngx_iap_slot_layer_t  *layer;

    slot = ngx_iap_slot_find(ban_log->zone, &entry->guard);

    if (slot == NULL) {
        return;
    }

    layer = ngx_iap_slot_layer_find(slot, &entry->layer);

    if (layer == NULL) {
        return;
    }

    key.data = entry->key.data;
    key.len = entry->key.len;
    left = entry->left;

    here = entry->machine.len == ban_log->machine.len
           && ngx_memcmp(entry->machine.data, ban_log->machine.data,
                         ban_log->machine.len)
              == 0;

    rc = ngx_iap_ban_take(ban_log->zone, slot, layer, key, &left,
                          &entry->when, here);

    if (rc == NGX_DECLINED) {
        ngx_iap_zone_full(ban_log->zone, ban_log->log);
    }

    /* on the machine that made it, it is an error line */

    if (rc == NGX_OK) {
        ngx_log_error(NGX_LOG_INFO, ban_log->log, 0,
                      "iap_guard \"%V\" bans %V in layer \"%V\" for %uL "
                      "seconds, as machine %V does", &entry->guard,
                      &entry->key, &entry->layer, iap_ticks_to_sec(left),
                      &entry->machine);
    }
}
