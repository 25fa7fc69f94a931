/*
 * API: bans are lifted.
 *
 *     find the segments -> have them forgotten -> lift -> log -> answer
 *
 * In this order: a segment that is still full bans again with its next new
 * user, on any machine, and that ban would be later in the log of bans than
 * the lift.  So bans hold until the store has forgotten, and what is changed
 * once the answer is there comes later in the log.
 *
 * If the store is late the bans are lifted without it, and the answer says
 * that; the store goes on being asked.  Once it has forgotten, they are
 * lifted once more, with those that were made meanwhile because it had not;
 * but not those that somebody has made by hand, who has the last word.
 *
 * The lift is on the heap, for it is done also if the client leaves.  It is
 * freed when neither the store nor the log is to tell any more, and nobody
 * waits.
 */

#include "ngx_http_iap_guard_api.h"


/* as given; len 0: any */

typedef struct {
    ngx_str_t                        guard;
    ngx_str_t                        layer;
    ngx_str_t                        key;
} ngx_http_iap_guard_lift_args_t;


typedef struct {
    ngx_http_iap_guard_main_conf_t  *imcf;
    ngx_http_iap_guard_api_wait_t    wait;      /* the request */
    ngx_iap_forget_t                *forget;    /* NULL: the store has nothing
                                                   to forget */
    ngx_iap_ban_log_wait_t           log_wait;
    ngx_iap_ban_filter_t             filter;    /* texts are the lift's */
    iap_key_t                        identity;  /* filter.key, if it is one */
    ngx_str_t                        client;
    ngx_log_t                       *log;       /* while bans are lifted */
    ngx_uint_t                       lifted;
    unsigned                         failed:1;  /* there was no memory */
    unsigned                         late:1;    /* was lifted without the
                                                   store */
    unsigned                         forgotten:1;
    unsigned                         written:1; /* to the log */
    unsigned                         over:1;    /* no more will be told */
} ngx_http_iap_guard_lift_t;


static ngx_int_t ngx_http_iap_guard_lift_args(ngx_http_request_t *r,
    ngx_http_iap_guard_lift_args_t *args);
static ngx_http_iap_guard_lift_t *ngx_http_iap_guard_lift_create(
    ngx_http_request_t *r, ngx_http_iap_guard_lift_args_t *args);
static void ngx_http_iap_guard_lift_filter(ngx_http_iap_guard_lift_t *lift,
    ngx_str_t *key);
static ngx_int_t ngx_http_iap_guard_lift_segments(
    ngx_http_iap_guard_lift_t *lift);
static void ngx_http_iap_guard_lift_prefix(ngx_http_iap_guard_lift_t *lift);
static ngx_int_t ngx_http_iap_guard_lift_found(ngx_iap_ban_info_t *ban,
    void *data);
static void ngx_http_iap_guard_lift_told(void *data,
    ngx_iap_forget_told_e told);
static ngx_int_t ngx_http_iap_guard_lift_log(
    ngx_http_iap_guard_lift_t *lift);
static void ngx_http_iap_guard_lift_logged(void *data,
    ngx_iap_ban_log_told_e told);
static void ngx_http_iap_guard_lift_over(ngx_http_iap_guard_lift_t *lift);
static void ngx_http_iap_guard_lift_bans(ngx_http_iap_guard_lift_t *lift);
static ngx_int_t ngx_http_iap_guard_lift_ban(ngx_iap_ban_info_t *ban,
    void *data);
static void ngx_http_iap_guard_lift_tell(ngx_http_iap_guard_lift_t *lift);
static ngx_int_t ngx_http_iap_guard_lift_tell_kept(ngx_iap_ban_info_t *ban,
    void *data);
static ngx_int_t ngx_http_iap_guard_lift_answer(ngx_http_request_t *r,
    void *data);
static void ngx_http_iap_guard_lift_forsaken(void *data);


ngx_int_t
ngx_http_iap_guard_api_bans_delete(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_int_t                        rc;
    ngx_http_iap_guard_lift_t       *lift;
    ngx_http_iap_guard_lift_args_t   args;

    rc = ngx_http_iap_guard_lift_args(r, &args);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                            "bad_request", "expected at least "
                                            "one of \"guard=\", \"layer=\" "
                                            "and \"key=\", each with a value "
                                            "and once, and nothing else");
    }

    lift = ngx_http_iap_guard_lift_create(r, &args);
    if (lift == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_iap_guard_lift_segments(lift) != NGX_OK) {
        ngx_free(lift);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_iap_guard_api_wait(r, &lift->wait);

    if (rc != NGX_AGAIN) {

        if (lift->forget != NULL) {
            ngx_iap_forget_free(lift->forget);
        }

        ngx_free(lift);
        return rc;
    }

    if (lift->forget != NULL) {
        ngx_iap_forget_start(lift->forget);
        return NGX_AGAIN;
    }

    ngx_http_iap_guard_lift_told(lift, NGX_IAP_FORGET_DONE);

    return NGX_AGAIN;
}


/* NGX_DECLINED: there are none, or others, or empty ones: whoever lifts bans
   by mistake lets attackers in */

static ngx_int_t
ngx_http_iap_guard_lift_args(ngx_http_request_t *r,
    ngx_http_iap_guard_lift_args_t *args)
{
    u_char      *p, *last, *end;
    ngx_int_t    rc;
    ngx_uint_t   i, n, given;

    struct {
        const char  *name;
        ngx_str_t   *value;
    } known[] = {
        { "guard", &args->guard },
        { "layer", &args->layer },
        { "key", &args->key }
    };

    given = 0;
    ngx_memzero(args, sizeof(ngx_http_iap_guard_lift_args_t));

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        rc = ngx_http_iap_guard_api_arg(r, known[i].name, known[i].value);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_OK) {
            if (known[i].value->len == 0) {
                return NGX_DECLINED;
            }

            given++;
        }
    }

    n = 0;
    end = r->args.data + r->args.len;

    for (p = r->args.data; p < end; p = last + 1) {
        last = ngx_strlchr(p, end, '&');
        last = last ? last : end;
        n++;
    }

    return (given != 0 && n == given) ? NGX_OK : NGX_DECLINED;
}


/* its texts stand behind it */

static ngx_http_iap_guard_lift_t *
ngx_http_iap_guard_lift_create(ngx_http_request_t *r,
    ngx_http_iap_guard_lift_args_t *args)
{
    u_char                     *p;
    ngx_str_t                  *client;
    ngx_http_iap_guard_lift_t  *lift;

    client = &r->connection->addr_text;

    lift = ngx_calloc(sizeof(ngx_http_iap_guard_lift_t) + args->guard.len
                      + args->layer.len + client->len, ngx_cycle->log);
    if (lift == NULL) {
        return NULL;
    }

    p = (u_char *) (lift + 1);

    lift->filter.guard.data = p;
    lift->filter.guard.len = args->guard.len;
    p = ngx_cpymem(p, args->guard.data, args->guard.len);

    lift->filter.layer.data = p;
    lift->filter.layer.len = args->layer.len;
    p = ngx_cpymem(p, args->layer.data, args->layer.len);

    lift->client.data = p;
    lift->client.len = client->len;
    ngx_memcpy(p, client->data, client->len);

    lift->wait.answer = ngx_http_iap_guard_lift_answer;
    lift->wait.forsaken = ngx_http_iap_guard_lift_forsaken;
    lift->wait.data = lift;

    lift->log_wait.handler = ngx_http_iap_guard_lift_logged;
    lift->log_wait.data = lift;

    lift->imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    ngx_http_iap_guard_lift_filter(lift, &args->key);

    return lift;
}


/* a key may be meant as a prefix, as an identity, or as either */

static void
ngx_http_iap_guard_lift_filter(ngx_http_iap_guard_lift_t *lift,
    ngx_str_t *key)
{
    iap_view_t  view;

    if (key->len == 0) {
        lift->filter.any_key = 1;
        return;
    }

    view.data = key->data;
    view.len = key->len;
    (void) iap_addr_parse_prefix(view, &lift->filter.addr,
                                 &lift->filter.bits);

    if (ngx_http_iap_guard_ban_key(lift->imcf, key, &lift->identity)
        == NGX_OK)
    {
        lift->filter.key.data = lift->identity.data;
        lift->filter.key.len = lift->identity.len;
    }
}


/* those that are to be forgotten: here at once, and by the store, which is not
   asked yet */

static ngx_int_t
ngx_http_iap_guard_lift_segments(ngx_http_iap_guard_lift_t *lift)
{
    ngx_iap_redis_t  *redis;

    if (lift->imcf->redis_conf != NULL) {
        redis = ngx_http_iap_guard_store(lift->imcf);

        lift->forget = redis ? ngx_iap_forget_create(redis,
                                         ngx_http_iap_guard_lift_told, lift)
                             : NULL;

        if (lift->forget == NULL) {
            return NGX_ERROR;
        }
    }

    if (lift->filter.any_key) {
        ngx_iap_bans_find(lift->imcf->zone, &lift->filter,
                          ngx_http_iap_guard_lift_found, lift);

    } else if (lift->filter.addr.family != IAP_ADDR_NONE
               && (lift->filter.layer.len == 0
                   || ngx_http_iap_guard_ban_is_segment(&lift->filter.layer)))
    {
        ngx_http_iap_guard_lift_prefix(lift);
    }

    if (lift->forget != NULL
        && (lift->failed || ngx_iap_forget_size(lift->forget) == 0))
    {
        ngx_iap_forget_free(lift->forget);
        lift->forget = NULL;
    }

    return lift->failed ? NGX_ERROR : NGX_OK;
}


/* also if no such ban is known here: it may be on its way */

static void
ngx_http_iap_guard_lift_prefix(ngx_http_iap_guard_lift_t *lift)
{
    ngx_uint_t              i;
    ngx_http_iap_guard_t  **guards;
    ngx_iap_ban_filter_t   *filter;

    filter = &lift->filter;
    guards = lift->imcf->guards.elts;

    for (i = 0; i < lift->imcf->guards.nelts; i++) {

        if (filter->guard.len != 0
            && (filter->guard.len != guards[i]->name.len
                || ngx_memcmp(filter->guard.data, guards[i]->name.data,
                              filter->guard.len)
                   != 0))
        {
            continue;
        }

        if (ngx_http_iap_guard_forget_prefix(lift->imcf, guards[i],
                                             &filter->addr, filter->bits,
                                             lift->forget)
            != NGX_OK)
        {
            lift->failed = 1;
        }
    }
}


static ngx_int_t
ngx_http_iap_guard_lift_found(ngx_iap_ban_info_t *ban, void *data)
{
    ngx_http_iap_guard_lift_t *lift = data;

    if (ngx_http_iap_guard_forget_ban(ban, lift->imcf, lift->forget)
        != NGX_OK)
    {
        lift->failed = 1;
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_http_iap_guard_lift_told(void *data, ngx_iap_forget_told_e told)
{
    ngx_http_iap_guard_lift_t *lift = data;

    lift->log = ngx_cycle->log;

    if (lift->wait.request != NULL) {
        lift->log = lift->wait.request->connection->log;
        ngx_http_set_log_request(lift->log, lift->wait.request);
    }

    switch (told) {

    case NGX_IAP_FORGET_LATE:
        lift->late = 1;
        ngx_http_iap_guard_lift_bans(lift);
        ngx_http_iap_guard_api_wake(&lift->wait);
        return;

    case NGX_IAP_FORGET_DONE:
        lift->forgotten = 1;
        lift->filter.keeps = lift->late;
        ngx_http_iap_guard_lift_bans(lift);
        ngx_http_iap_guard_lift_tell(lift);

        if (ngx_http_iap_guard_lift_log(lift) == NGX_AGAIN) {
            return;
        }

        break;

    case NGX_IAP_FORGET_LOST:
        lift->filter.keeps = 1;
        ngx_http_iap_guard_lift_tell(lift);
        break;

    default: /* NGX_IAP_FORGET_GONE */
        ngx_http_iap_guard_api_leave(&lift->wait);
        break;
    }

    ngx_http_iap_guard_lift_over(lift);
}


/* NGX_AGAIN: somebody waits until it is written */

static ngx_int_t
ngx_http_iap_guard_lift_log(ngx_http_iap_guard_lift_t *lift)
{
    ngx_int_t  rc;

    if (lift->imcf->redis_conf == NULL) {
        lift->written = 1;
        return NGX_OK;
    }

    if (lift->wait.request == NULL || lift->late
        || lift->imcf->ban_log == NULL)
    {
        return NGX_OK;
    }

    rc = ngx_iap_ban_log_wait(lift->imcf->ban_log, &lift->log_wait);

    lift->written = (rc == NGX_OK);

    return rc;
}


static void
ngx_http_iap_guard_lift_logged(void *data, ngx_iap_ban_log_told_e told)
{
    ngx_http_iap_guard_lift_t *lift = data;

    lift->written = (told == NGX_IAP_BAN_LOG_WRITTEN);

    if (told == NGX_IAP_BAN_LOG_GONE) {
        ngx_http_iap_guard_api_leave(&lift->wait);
    }

    ngx_http_iap_guard_lift_over(lift);
}


/* no more will be told */

static void
ngx_http_iap_guard_lift_over(ngx_http_iap_guard_lift_t *lift)
{
    lift->over = 1;

    if (lift->wait.request == NULL) {
        ngx_free(lift);
        return;
    }

    ngx_http_iap_guard_api_wake(&lift->wait);
}


static void
ngx_http_iap_guard_lift_bans(ngx_http_iap_guard_lift_t *lift)
{
    ngx_iap_bans_lift(lift->imcf->zone, &lift->filter,
                      ngx_http_iap_guard_lift_ban, lift);
}


static ngx_int_t
ngx_http_iap_guard_lift_ban(ngx_iap_ban_info_t *ban, void *data)
{
    ngx_http_iap_guard_lift_t *lift = data;

    /* it may have been made since they were looked for */

    (void) ngx_http_iap_guard_forget_ban(ban, lift->imcf, NULL);

    lift->lifted++;

    if (lift->log != ngx_cycle->log) {
        ngx_log_error(NGX_LOG_ERR, lift->log, 0,
                      "iap_guard \"%V\" lifts the ban of %*s in layer \"%V\" "
                      "through the API", &ban->guard, ban->key_len, ban->key,
                      &ban->layer);
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_ERR, lift->log, 0,
                  "iap_guard \"%V\" lifts the ban of %*s in layer \"%V\", as "
                  "client %V has asked through the API", &ban->guard,
                  ban->key_len, ban->key, &ban->layer, &lift->client);

    return NGX_OK;
}


/* the other machines: also if there was no such ban here */

static void
ngx_http_iap_guard_lift_tell(ngx_http_iap_guard_lift_t *lift)
{
    u_char                 text[IAP_ADDR_TEXT_MAX];
    ngx_str_t              key, segment = ngx_string("segment");
    ngx_iap_ban_log_t     *ban_log;
    ngx_iap_ban_filter_t  *filter;

    filter = &lift->filter;
    ban_log = lift->imcf->ban_log;

    if (ban_log == NULL) {
        return;
    }

    key.data = lift->identity.data;
    key.len = filter->key.len;

    if (filter->any_key || key.len != 0) {
        ngx_iap_ban_log_lifted(ban_log, &filter->guard, &filter->layer, &key);
    }

    /* an identity's text may be a hash, which tells of no prefix */

    if (filter->addr.family != IAP_ADDR_NONE
        && (filter->layer.len == 0
            || ngx_http_iap_guard_ban_is_segment(&filter->layer)))
    {
        key.data = text;
        key.len = iap_addr_text(&filter->addr, filter->bits, text);

        ngx_iap_ban_log_lifted(ban_log, &filter->guard, &segment, &key);
    }

    if (filter->keeps) {
        ngx_iap_bans_find(lift->imcf->zone, filter,
                          ngx_http_iap_guard_lift_tell_kept, lift);
    }
}


/* what is kept here is not to end elsewhere */

static ngx_int_t
ngx_http_iap_guard_lift_tell_kept(ngx_iap_ban_info_t *ban, void *data)
{
    ngx_http_iap_guard_lift_t *lift = data;

    ngx_str_t  key;

    if (ban->by_hand) {
        key.data = ban->key;
        key.len = ban->key_len;

        ngx_iap_ban_again(lift->imcf->zone, ban->hash);
        ngx_iap_ban_log_made(lift->imcf->ban_log, &ban->guard, &ban->layer,
                             &key);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_lift_answer(ngx_http_request_t *r, void *data)
{
    ngx_http_iap_guard_lift_t *lift = data;

    json_t  *json;

    json = json_pack("{s:I}", "lifted", (json_int_t) lift->lifted);

    if (!lift->forgotten) {
        (void) json_object_set_new(json, "forgotten", json_false());

    } else if (!lift->written) {
        (void) json_object_set_new(json, "shared", json_false());
    }

    if (lift->over) {
        ngx_free(lift);
    }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK, json);
}


static void
ngx_http_iap_guard_lift_forsaken(void *data)
{
    ngx_http_iap_guard_lift_t *lift = data;

    if (lift->log_wait.ban_log != NULL) {
        ngx_iap_ban_log_cancel(&lift->log_wait);
        lift->over = 1;
    }

    if (lift->over) {
        ngx_free(lift);
    }
}
