/*
 * What became of a call to the upstream: once per client request, whatever
 * nginx tried underneath.
 *
 * nginx keeps a state of each try in r->upstream_states; those that came after
 * the permit are this call's, and the last of them tells how it ended.  An
 * internal redirect ends it at the latest.  The answer's body passes through a
 * filter, and is looked at, unless something else is sent in its place.
 */

#include "ngx_http_iap_guard_breaker.h"


/* bytes of a body that are looked at; a longer one is judged by its status */
#define NGX_HTTP_IAP_GUARD_BODY_MAX  (1024 * 1024)


static void ngx_http_iap_guard_outcome_watch(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
static void ngx_http_iap_guard_outcome_finalize(ngx_http_request_t *r,
    ngx_int_t rc);
static void ngx_http_iap_guard_outcome_done(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
static void ngx_http_iap_guard_outcome_time(
    ngx_http_iap_guard_upstream_call_t *call);
static iap_transport_e ngx_http_iap_guard_outcome_rest(ngx_http_request_t *r);
static ngx_uint_t ngx_http_iap_guard_outcome_left(ngx_http_request_t *r);
static ngx_uint_t ngx_http_iap_guard_outcome_has_header(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state);
static void ngx_http_iap_guard_outcome_settle(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_transport_e transport,
    iap_body_e body);
static void ngx_http_iap_guard_outcome_judge(ngx_http_request_t *r,
    ngx_http_iap_guard_upstream_call_t *call, iap_transport_e transport,
    iap_body_e body, iap_verdict_of_t *verdict);
static ngx_uint_t ngx_http_iap_guard_outcome_fails(iap_class_e class);
static void ngx_http_iap_guard_outcome_none(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
static iap_ticks_t ngx_http_iap_guard_outcome_hold(ngx_http_request_t *r,
    ngx_http_iap_guard_breaker_t *breaker, ngx_http_upstream_state_t *state);


/* from the header filter: the first header that goes to the client */

void
ngx_http_iap_guard_outcome_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    unsigned                             status;
    ngx_uint_t                           bodiless;
    ngx_http_upstream_state_t           *state;
    ngx_http_iap_guard_upstream_call_t  *call;

    call = &ctx->call;

    if (!call->open) {
        return;
    }

    if (call->watching) {

        /* another filter has put something else in the answer's place, such
           as 416, after its header had passed here */

        ngx_http_iap_guard_outcome_settle(r, ctx, IAP_TRANSPORT_OK,
                                          IAP_BODY_UNREAD);
        return;
    }

    state = ngx_http_iap_guard_outcome_state(r, &call->since);

    if (!ngx_http_iap_guard_outcome_is_sent(r, state)) {
        ngx_http_iap_guard_outcome_end(r, ctx);
        return;
    }

    ngx_http_iap_guard_outcome_time(call);

    /* nginx's own header filter, which is the last, sets r->header_only */

    bodiless = r->header_only || r->method == NGX_HTTP_HEAD;

    status = ngx_http_iap_guard_outcome_status(r, state);

    if (!bodiless
        && (status == NGX_HTTP_NO_CONTENT || status == NGX_HTTP_NOT_MODIFIED))
    {
        ngx_http_iap_guard_outcome_settle(r, ctx, IAP_TRANSPORT_OK,
                                          IAP_BODY_NONE);
        return;
    }

    if (bodiless
        || r->headers_out.status == NGX_HTTP_NOT_MODIFIED
        || r->headers_out.status == NGX_HTTP_SWITCHING_PROTOCOLS)
    {
        /* no body comes by here; or what follows is no answer, and may go on
           for hours */

        ngx_http_iap_guard_outcome_settle(r, ctx, IAP_TRANSPORT_OK,
                                          IAP_BODY_UNREAD);
        return;
    }

    ngx_http_iap_guard_outcome_watch(r, ctx);
}


/* from here on the call ends when its body does */

static void
ngx_http_iap_guard_outcome_watch(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_classifier_t     *classifier;
    ngx_http_iap_guard_upstream_call_t  *call;

    call = &ctx->call;
    classifier = call->breaker->classifier;

    call->watching = 1;
    call->json = NULL;
    call->body = IAP_BODY_NONE;
    call->length = 0;

    call->finalize = r->upstream->finalize_request;
    r->upstream->finalize_request = ngx_http_iap_guard_outcome_finalize;

    if (!classifier->body) {
        return;
    }

    if (r->headers_out.content_encoding != NULL
        && r->headers_out.content_encoding->value.len != 0)
    {
        call->body = IAP_BODY_UNREAD;
        return;
    }

    call->json = ngx_palloc(r->pool, sizeof(iap_json_t));

    if (call->json == NULL) {
        call->body = IAP_BODY_UNREAD;
        return;
    }

    iap_json_init(call->json, classifier->paths, classifier->npaths);

    r->filter_need_in_memory = 1;
}


/* from the body filter */

void
ngx_http_iap_guard_outcome_body(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_buf_t                           *b;
    iap_view_t                           bytes;
    ngx_uint_t                           last;
    ngx_http_iap_guard_upstream_call_t  *call;

    call = &ctx->call;
    last = 0;

    if (call->json != NULL
        && r->headers_out.status == NGX_HTTP_PARTIAL_CONTENT)
    {
        /* a part, which the client has asked for, is no JSON */

        call->json = NULL;
        call->body = IAP_BODY_UNREAD;
    }

    for ( /* void */ ; in != NULL; in = in->next) {
        b = in->buf;

        if (b->last_buf) {
            last = 1;
        }

        if (ngx_buf_special(b)) {
            continue;
        }

        call->length += ngx_buf_size(b);

        if (call->json == NULL) {
            continue;
        }

        if (!ngx_buf_in_memory(b)
            || call->length > NGX_HTTP_IAP_GUARD_BODY_MAX)
        {
            call->json = NULL;
            call->body = IAP_BODY_UNREAD;
            continue;
        }

        bytes.data = b->pos;
        bytes.len = b->last - b->pos;

        (void) iap_json_scan(call->json, bytes);
    }

    if (last) {
        ngx_http_iap_guard_outcome_done(r, ctx);
    }
}


/*
 * From nginx, when it is done with the upstream.  What a slow client has yet to
 * take of an answer may be in a file, above this filter: no permit that others
 * wait for is kept until then.
 */

static void
ngx_http_iap_guard_outcome_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_iap_guard_ctx_t            *ctx;
    ngx_http_iap_guard_upstream_call_t  *call;

    ctx = ngx_http_iap_guard_get_ctx(r);
    call = &ctx->call;

    call->finalize(r, rc);

    if (rc == NGX_OK
        && call->watching
        && (r->buffered & NGX_HTTP_COPY_BUFFERED)
        && (call->permit.lease != 0 || call->breaker->ref.conf.inflight != 0))
    {
        ngx_http_iap_guard_outcome_settle(r, ctx, IAP_TRANSPORT_OK,
                                          IAP_BODY_UNREAD);
    }
}


/* the body has ended */

static void
ngx_http_iap_guard_outcome_done(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_upstream_call_t  *call;

    call = &ctx->call;

    if (call->json != NULL && call->length != 0) {
        call->body = iap_json_end(call->json) == IAP_JSON_DONE
                     ? IAP_BODY_JSON : IAP_BODY_NOT_JSON;

    } else if (!call->breaker->classifier->body && call->length != 0) {
        call->body = IAP_BODY_UNREAD;
    }

    ngx_http_iap_guard_outcome_settle(r, ctx, IAP_TRANSPORT_OK, call->body);
}


/*
 * The request has ended, or goes elsewhere: what is known has to do.  For the
 * filters, too, where something else than the upstream's answer is sent.
 */

void
ngx_http_iap_guard_outcome_end(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    iap_transport_e                      transport;
    ngx_http_upstream_state_t           *state;
    ngx_http_iap_guard_upstream_call_t  *call;

    call = &ctx->call;

    if (!call->open) {
        return;
    }

    if (call->watching) {

        /* its header has come, and its last byte has not */

        transport = ngx_http_iap_guard_outcome_rest(r);
        ngx_http_iap_guard_outcome_settle(r, ctx, transport, IAP_BODY_UNREAD);
        return;
    }

    ngx_http_iap_guard_outcome_time(call);

    if (!ngx_http_iap_guard_outcome_asked(r, &call->since)) {
        ngx_http_iap_guard_outcome_none(r, ctx);
        return;
    }

    state = ngx_http_iap_guard_outcome_state(r, &call->since);
    transport = ngx_http_iap_guard_outcome_transport(r, state);

    ngx_http_iap_guard_outcome_settle(r, ctx, transport, IAP_BODY_UNREAD);
}


/* until its header came, or it ended, a call hung */

static void
ngx_http_iap_guard_outcome_time(ngx_http_iap_guard_upstream_call_t *call)
{
    ngx_msec_t      slow;
    ngx_msec_int_t  passed;

    ngx_http_iap_guard_breaker_unwatch(call);

    slow = (ngx_msec_t) (call->breaker->ref.conf.slow / IAP_TICKS_PER_MS);
    passed = (ngx_msec_int_t) (ngx_current_msec - call->begun);

    if (slow != 0 && passed > (ngx_msec_int_t) slow) {
        call->slow = 1;
    }
}


/* the call's last try; NULL: there was none.  Before the tries of a request
   that was redirected internally stands an empty state. */

ngx_http_upstream_state_t *
ngx_http_iap_guard_outcome_state(ngx_http_request_t *r,
    ngx_http_iap_guard_since_t *since)
{
    ngx_uint_t                  i;
    ngx_http_upstream_state_t  *state, *last;

    if (r->upstream_states == NULL) {
        return NULL;
    }

    state = r->upstream_states->elts;
    last = NULL;

    for (i = since->states; i < r->upstream_states->nelts; i++) {

        if (state[i].peer != NULL || state[i].status != 0
            || state[i].connect_time != 0 || state[i].header_time != 0)
        {
            last = &state[i];
        }
    }

    return last;
}


iap_transport_e
ngx_http_iap_guard_outcome_transport(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state)
{
    if (state != NULL && state->header_time != (ngx_msec_t) -1) {
        return IAP_TRANSPORT_OK;
    }

    if (ngx_http_iap_guard_outcome_left(r)) {
        return IAP_TRANSPORT_LEFT;
    }

    if (state == NULL || state->status == 0) {

        /* nginx gave up before the upstream did: for want of its address, or
           of a socket */

        return IAP_TRANSPORT_LOCAL;
    }

    if (state->status == NGX_HTTP_GATEWAY_TIME_OUT) {
        return IAP_TRANSPORT_TIMEOUT;
    }

    return state->connect_time == (ngx_msec_t) -1 ? IAP_TRANSPORT_CONNECT
                                                  : IAP_TRANSPORT_RESET;
}


/* whether r->upstream has the header of this try's answer: nginx reads that of
   a stale one over it */

static ngx_uint_t
ngx_http_iap_guard_outcome_has_header(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state)
{
#if (NGX_HTTP_CACHE)

    /* without a cache, it is a former location's that was cached */

    if (r->cached && r->cache != NULL) {
        return 0;
    }

#endif

    return state != NULL && state->header_time != (ngx_msec_t) -1;
}


/* whether it is what is about to be sent: nginx ends an upstream before it
   sends something of its own */

ngx_uint_t
ngx_http_iap_guard_outcome_is_sent(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state)
{
    return ngx_http_iap_guard_outcome_has_header(r, state)
           && r->upstream->cleanup != NULL
           && !r->filter_finalize;
}


/* of the answer; a state keeps the first one, which may have been that of an
   early hint */

unsigned
ngx_http_iap_guard_outcome_status(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state)
{
    if (state == NULL) {
        return 0;
    }

    /* HTTP/0.9 has none, and a state of 200 */

    return ngx_http_iap_guard_outcome_has_header(r, state)
           && r->upstream->headers_in.status_n != 0
           ? (unsigned) r->upstream->headers_in.status_n
           : (unsigned) state->status;
}


/* without a single try, it could not be asked, unless something else answers:
   a file, the cache, or another request's answer that is waited for */

ngx_uint_t
ngx_http_iap_guard_outcome_asked(ngx_http_request_t *r,
    ngx_http_iap_guard_since_t *since)
{
    if (ngx_http_iap_guard_outcome_state(r, since) != NULL) {
        return 1;
    }

    if (r->upstream == since->former) {
        return 0;
    }

#if (NGX_HTTP_CACHE)

    if (r->cache != NULL && r->cache->waiting) {
        return 0;
    }

    switch (r->upstream->cache_status) {

    case NGX_HTTP_CACHE_HIT:
    case NGX_HTTP_CACHE_STALE:
    case NGX_HTTP_CACHE_UPDATING:
        return 0;
    }

#endif

    return 1;
}


/* a body that does not come to its end.  Where nginx has not sent the header,
   or a filter has put something else in its place, that is not the upstream's
   doing. */

static iap_transport_e
ngx_http_iap_guard_outcome_rest(ngx_http_request_t *r)
{
    if (ngx_http_iap_guard_outcome_left(r)) {
        return IAP_TRANSPORT_LEFT;
    }

    return r->filter_finalize || !r->upstream->header_sent
           ? IAP_TRANSPORT_OK : IAP_TRANSPORT_CUT;
}


/* whether it was the client that ended it, be it by not reading any more; nginx
   says so, too, where a filter has failed */

static ngx_uint_t
ngx_http_iap_guard_outcome_left(ngx_http_request_t *r)
{
    return r->connection->error || r->connection->timedout;
}


static void
ngx_http_iap_guard_outcome_settle(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_transport_e transport,
    iap_body_e body)
{
    iap_ticks_t                          hold;
    iap_verdict_of_t                     verdict;
    ngx_iap_outcome_e                    outcome;
    ngx_http_upstream_state_t           *state;
    ngx_http_iap_guard_upstream_call_t  *call;

    call = &ctx->call;
    state = ngx_http_iap_guard_outcome_state(r, &call->since);

    ngx_http_iap_guard_outcome_judge(r, call, transport, body, &verdict);

    outcome = transport == IAP_TRANSPORT_LOCAL ? NGX_IAP_OUTCOME_LOCAL
                                               : (ngx_iap_outcome_e)
                                                 verdict.class;

    hold = verdict.effect == IAP_EFFECT_HOLD
           ? ngx_http_iap_guard_outcome_hold(r, call->breaker, state) : 0;

    call->open = 0;
    call->watching = 0;
    call->left = transport == IAP_TRANSPORT_LEFT;
    call->failed = ngx_http_iap_guard_outcome_fails(verdict.class);

    ngx_iap_breaker_end(&call->breaker->ref, &call->permit, outcome,
                        verdict.effect, call->slow, hold, verdict.rule,
                        ngx_cycle->log);
}


static void
ngx_http_iap_guard_outcome_judge(ngx_http_request_t *r,
    ngx_http_iap_guard_upstream_call_t *call, iap_transport_e transport,
    iap_body_e body, iap_verdict_of_t *verdict)
{
    iap_answer_t                      answer;
    iap_answer_json_t                 values;
    ngx_http_upstream_state_t        *state;
    ngx_http_iap_guard_classifier_t  *classifier;

    classifier = call->breaker->classifier;
    state = ngx_http_iap_guard_outcome_state(r, &call->since);

    values.json = call->json;
    values.paths = classifier->paths;
    values.npaths = classifier->npaths;

    answer.transport = transport;
    answer.status = ngx_http_iap_guard_outcome_status(r, state);
    answer.body = body;
    answer.value = iap_answer_value;
    answer.json = &values;

    iap_classify(classifier->rules.elts, (unsigned) classifier->rules.nelts,
                 &answer, verdict);
}


/* what a client has no answer by, for which there may be a fallback */

static ngx_uint_t
ngx_http_iap_guard_outcome_fails(iap_class_e class)
{
    return class == IAP_CLASS_RETRY
           || class == IAP_CLASS_HOLD
           || class == IAP_CLASS_CONFIG;
}


void
ngx_http_iap_guard_outcome_long(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    iap_verdict_of_t  verdict;

    ngx_http_iap_guard_outcome_judge(r, &ctx->call, IAP_TRANSPORT_OK,
                                     IAP_BODY_UNREAD, &verdict);

    if (ngx_http_iap_guard_outcome_fails(verdict.class)) {
        ngx_http_iap_guard_outcome_settle(r, ctx, IAP_TRANSPORT_OK,
                                          IAP_BODY_UNREAD);
    }
}


static void
ngx_http_iap_guard_outcome_none(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    iap_view_t                           no_rule = { NULL, 0 };
    ngx_http_iap_guard_upstream_call_t  *call;

    call = &ctx->call;
    call->open = 0;

    ngx_iap_breaker_end(&call->breaker->ref, &call->permit,
                        NGX_IAP_OUTCOME_NEUTRAL, IAP_EFFECT_NONE, 0, 0,
                        no_rule, ngx_cycle->log);
}


/* as long as the upstream asks for; where it does not say, for the open time */

static iap_ticks_t
ngx_http_iap_guard_outcome_hold(ngx_http_request_t *r,
    ngx_http_iap_guard_breaker_t *breaker, ngx_http_upstream_state_t *state)
{
    iap_view_t        value;
    ngx_uint_t        i;
    iap_ticks_t       hold;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    static const char  name[] = "Retry-After";

    if (!ngx_http_iap_guard_outcome_has_header(r, state)) {
        return breaker->ref.conf.open;
    }

    for (part = &r->upstream->headers_in.headers.part;
         part != NULL;
         part = part->next)
    {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (h[i].hash == 0
                || h[i].key.len != sizeof(name) - 1
                || ngx_strncasecmp(h[i].key.data, (u_char *) name,
                                   sizeof(name) - 1)
                   != 0)
            {
                continue;
            }

            value.data = h[i].value.data;
            value.len = h[i].value.len;

            if (iap_retry_after(value, (uint64_t) ngx_time(), &hold)) {
                return hold;
            }
        }
    }

    return breaker->ref.conf.open;
}
