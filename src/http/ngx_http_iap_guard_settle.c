/*
 * What becomes of a reserved unit, by what was answered.
 *
 *     upstream   a status of success=, or rules say success      sold
 *                another status, or another class                released
 *                502, 504; sent to, and no answer; its client     left to
 *                or its body's end lost                            its lease
 *                never reached                                    released
 *     none       what is sent instead: a file, a cached answer     by status
 *                a refusal by what came later, an error page      released
 *
 * It is the upstream's own first answer that counts, whatever is sent in its
 * place.  The header is held until the ledger has told, so that who was told
 * of a failure may try again at once; and for as long as the ledger's time-out
 * at most: what was told to it is carried out anyway.  The body waits as with
 * a slow client.  With "classify=" it is read before, up to a bound.
 */

#include "ngx_http_iap_guard_code.h"


typedef enum {
    NGX_HTTP_IAP_GUARD_FATE_SOLD = 0,
    NGX_HTTP_IAP_GUARD_FATE_RELEASED,
    NGX_HTTP_IAP_GUARD_FATE_UNKNOWN
} ngx_http_iap_guard_fate_e;


static ngx_http_iap_guard_fate_e ngx_http_iap_guard_settle_fate(
    ngx_http_request_t *r, ngx_http_iap_guard_unit_t *unit,
    ngx_uint_t *status);
static ngx_http_iap_guard_fate_e ngx_http_iap_guard_settle_answered(
    ngx_http_iap_guard_unit_t *unit, ngx_uint_t status);
static ngx_http_iap_guard_fate_e ngx_http_iap_guard_settle_judge(
    ngx_http_iap_guard_unit_t *unit, iap_transport_e transport,
    ngx_uint_t status, iap_body_e body);
static ngx_http_iap_guard_fate_e ngx_http_iap_guard_settle_doubt(
    ngx_http_request_t *r, ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_fate_e fate);
static ngx_uint_t ngx_http_iap_guard_settle_lost(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit);
static ngx_uint_t ngx_http_iap_guard_settle_was_sent(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state);
static void ngx_http_iap_guard_settle_as(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_fate_e fate, ngx_uint_t status, ngx_uint_t wait);
static ngx_int_t ngx_http_iap_guard_settle_hold(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit);
static ngx_uint_t ngx_http_iap_guard_settle_reads(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit);
static ngx_int_t ngx_http_iap_guard_settle_read(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, ngx_chain_t *in);
static void ngx_http_iap_guard_settle_scan(ngx_http_iap_guard_unit_t *unit,
    ngx_chain_t *in, ngx_uint_t *last);
static ngx_int_t ngx_http_iap_guard_settle_read_end(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_transport_e transport,
    iap_body_e body);
static ngx_int_t ngx_http_iap_guard_settle_go_on(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit);


/* by what is known now; *status is of what was answered */

static ngx_http_iap_guard_fate_e
ngx_http_iap_guard_settle_fate(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, ngx_uint_t *status)
{
    iap_transport_e             transport;
    ngx_http_upstream_state_t  *state;
    ngx_http_iap_guard_fate_e   fate;

    if (!ngx_http_iap_guard_outcome_asked(r, &unit->since)) {
        *status = r->headers_out.status;

        return unit->failed ? NGX_HTTP_IAP_GUARD_FATE_RELEASED
                            : ngx_http_iap_guard_settle_answered(unit,
                                                                 *status);
    }

    state = ngx_http_iap_guard_outcome_state(r, &unit->since);
    transport = ngx_http_iap_guard_outcome_transport(r, state);

    if (transport != IAP_TRANSPORT_OK) {
        *status = 0;

        return ngx_http_iap_guard_settle_lost(r, unit)
               ? NGX_HTTP_IAP_GUARD_FATE_UNKNOWN
               : NGX_HTTP_IAP_GUARD_FATE_RELEASED;
    }

    *status = ngx_http_iap_guard_outcome_status(r, state);

    if (r->upstream->state == state && r->upstream->headers_in.status_n == 0)
    {
        /* nginx takes whatever is no HTTP for an answer of HTTP/0.9 */

        return NGX_HTTP_IAP_GUARD_FATE_UNKNOWN;
    }

    fate = unit->conf->classifier != NULL
           ? ngx_http_iap_guard_settle_judge(unit, transport, *status,
                                             IAP_BODY_UNREAD)
           : ngx_http_iap_guard_settle_answered(unit, *status);

    return ngx_http_iap_guard_settle_doubt(r, unit, fate);
}


static ngx_http_iap_guard_fate_e
ngx_http_iap_guard_settle_answered(ngx_http_iap_guard_unit_t *unit,
    ngx_uint_t status)
{
    iap_answer_t      answer;
    iap_verdict_of_t  verdict;

    ngx_memzero(&answer, sizeof(iap_answer_t));

    answer.transport = IAP_TRANSPORT_OK;
    answer.status = (unsigned) status;
    answer.body = IAP_BODY_UNREAD;

    iap_classify(&unit->conf->success, 1, &answer, &verdict);

    if (verdict.class == IAP_CLASS_SUCCESS) {
        return NGX_HTTP_IAP_GUARD_FATE_SOLD;
    }

    /* another gateway's words, which does not know either */

    if (status == NGX_HTTP_BAD_GATEWAY || status == NGX_HTTP_GATEWAY_TIME_OUT)
    {
        return NGX_HTTP_IAP_GUARD_FATE_UNKNOWN;
    }

    return NGX_HTTP_IAP_GUARD_FATE_RELEASED;
}


/* the same by the rules of classify= */

static ngx_http_iap_guard_fate_e
ngx_http_iap_guard_settle_judge(ngx_http_iap_guard_unit_t *unit,
    iap_transport_e transport, ngx_uint_t status, iap_body_e body)
{
    iap_answer_t                      answer;
    iap_verdict_of_t                  verdict;
    iap_answer_json_t                 values;
    ngx_http_iap_guard_classifier_t  *classifier;

    classifier = unit->conf->classifier;

    values.json = unit->json;
    values.paths = classifier->paths;
    values.npaths = classifier->npaths;

    answer.transport = transport;
    answer.status = (unsigned) status;
    answer.body = body;
    answer.value = iap_answer_value;
    answer.json = &values;

    iap_classify(classifier->rules.elts, (unsigned) classifier->rules.nelts,
                 &answer, &verdict);

    switch (verdict.class) {

    case IAP_CLASS_SUCCESS:
        return NGX_HTTP_IAP_GUARD_FATE_SOLD;

    case IAP_CLASS_NEUTRAL:
        return NGX_HTTP_IAP_GUARD_FATE_UNKNOWN;

    default:
        break;
    }

    if (transport != IAP_TRANSPORT_OK
        || status == NGX_HTTP_BAD_GATEWAY
        || status == NGX_HTTP_GATEWAY_TIME_OUT)
    {
        return NGX_HTTP_IAP_GUARD_FATE_UNKNOWN;
    }

    return NGX_HTTP_IAP_GUARD_FATE_RELEASED;
}


/* who refuses knows of its own try, and not of another server's, which may have
   done it before its answer was lost */

static ngx_http_iap_guard_fate_e
ngx_http_iap_guard_settle_doubt(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, ngx_http_iap_guard_fate_e fate)
{
    return fate == NGX_HTTP_IAP_GUARD_FATE_RELEASED
           && ngx_http_iap_guard_settle_lost(r, unit)
           ? NGX_HTTP_IAP_GUARD_FATE_UNKNOWN : fate;
}


/* whether one of the tries had been sent to, and gave no answer */

static ngx_uint_t
ngx_http_iap_guard_settle_lost(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit)
{
    ngx_uint_t                  i;
    ngx_http_upstream_state_t  *state;

    if (r->upstream_states == NULL) {
        return 0;
    }

    state = r->upstream_states->elts;

    for (i = unit->since.states; i < r->upstream_states->nelts; i++) {

        if (state[i].header_time == (ngx_msec_t) -1
            && ngx_http_iap_guard_settle_was_sent(r, &state[i]))
        {
            return 1;
        }
    }

    return 0;
}


/* nginx notes what a try has sent when that has ended */

static ngx_uint_t
ngx_http_iap_guard_settle_was_sent(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u != NULL && u->state == state && u->peer.connection != NULL) {
        return u->peer.connection->sent != 0;
    }

    return state->bytes_sent != 0;
}


ngx_uint_t
ngx_http_iap_guard_settle_unknown(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit)
{
    return ngx_http_iap_guard_settle_lost(r, unit);
}


static void
ngx_http_iap_guard_settle_as(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_fate_e fate, ngx_uint_t status, ngx_uint_t wait)
{
    switch (fate) {

    case NGX_HTTP_IAP_GUARD_FATE_SOLD:
        (void) ngx_http_iap_guard_unit_settle(unit, IAP_STOCK_SELL, status,
                                              wait);
        break;

    case NGX_HTTP_IAP_GUARD_FATE_RELEASED:
        (void) ngx_http_iap_guard_unit_settle(unit, IAP_STOCK_RELEASE, 0,
                                              wait);
        break;

    default:
        ngx_http_iap_guard_unit_count(unit, IAP_CODE_EVENT_UNKNOWN);
        ngx_http_iap_guard_unit_leave(unit);
        unit->state = NGX_HTTP_IAP_GUARD_UNIT_OVER;
        break;
    }
}


/* without a header that was sent: what is not known to have come to nothing
   may have been done */

void
ngx_http_iap_guard_settle_end(ngx_http_iap_guard_unit_t *unit)
{
    ngx_uint_t                  status;
    ngx_http_request_t         *r;
    ngx_http_iap_guard_fate_e   fate;

    r = unit->request;

    if (r->post_action && ngx_http_iap_guard_outcome_asked(r, &unit->since)) {

        /* no header passes there: nobody is answered */

        fate = ngx_http_iap_guard_settle_fate(r, unit, &status);
        ngx_http_iap_guard_settle_as(unit, fate, status, 0);
        return;
    }

    if (unit->hold == NGX_HTTP_IAP_GUARD_ANSWER_READ
        || ngx_http_iap_guard_settle_lost(r, unit))
    {
        ngx_http_iap_guard_settle_as(unit, NGX_HTTP_IAP_GUARD_FATE_UNKNOWN, 0,
                                     0);
        return;
    }

    ngx_http_iap_guard_settle_as(unit, NGX_HTTP_IAP_GUARD_FATE_RELEASED, 0,
                                 0);
}


/* an upstream's answer, or an error, is what led away; "try_files" is not */

void
ngx_http_iap_guard_settle_leave(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_uint_t                  status;
    ngx_http_iap_guard_fate_e   fate;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit == NULL || unit->state != NGX_HTTP_IAP_GUARD_UNIT_HELD) {
        return;
    }

    if (ngx_http_iap_guard_outcome_asked(r, &unit->since)) {
        fate = ngx_http_iap_guard_settle_fate(r, unit, &status);

    } else if (unit->failed || r->err_status != 0
               || (r->error_page && !unit->error_page))
    {
        fate = NGX_HTTP_IAP_GUARD_FATE_RELEASED;
        status = 0;

    } else {
        return;
    }

    ngx_http_iap_guard_settle_as(unit, fate, status, 1);
}


ngx_int_t
ngx_http_iap_guard_settle_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_uint_t                  status;
    ngx_http_iap_guard_fate_e   fate;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit == NULL) {
        return NGX_DECLINED;
    }

    if (unit->hold != NGX_HTTP_IAP_GUARD_ANSWER_FREE) {

        /* another filter puts something else in the place of what is held */

        (void) ngx_http_iap_guard_held_take(&unit->held);

        if (unit->hold == NGX_HTTP_IAP_GUARD_ANSWER_HELD) {
            return NGX_OK;
        }

        unit->hold = NGX_HTTP_IAP_GUARD_ANSWER_FREE;
        r->buffered &= ~NGX_HTTP_IAP_GUARD_BUFFERED;
    }

    if (unit->state == NGX_HTTP_IAP_GUARD_UNIT_HELD) {

        if (ngx_http_iap_guard_settle_reads(r, unit)) {
            unit->hold = NGX_HTTP_IAP_GUARD_ANSWER_READ;
            r->buffered |= NGX_HTTP_IAP_GUARD_BUFFERED;
            r->filter_need_in_memory = 1;

            return NGX_OK;
        }

        fate = ngx_http_iap_guard_settle_fate(r, unit, &status);

        /* what follows 101 does not come by the filters */

        ngx_http_iap_guard_settle_as(unit, fate, status,
                                     r->headers_out.status
                                     != NGX_HTTP_SWITCHING_PROTOCOLS);
    }

    return ngx_http_iap_guard_settle_hold(r, unit);
}


static ngx_int_t
ngx_http_iap_guard_settle_hold(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit)
{
    if (unit->state != NGX_HTTP_IAP_GUARD_UNIT_SETTLING || unit->op == NULL) {
        return NGX_DECLINED;
    }

    unit->hold = NGX_HTTP_IAP_GUARD_ANSWER_HELD;
    r->buffered |= NGX_HTTP_IAP_GUARD_BUFFERED;

    return NGX_OK;
}


/* whether the rules are to see the body of what is about to be sent */

static ngx_uint_t
ngx_http_iap_guard_settle_reads(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit)
{
    ngx_http_upstream_state_t        *state;
    ngx_http_iap_guard_classifier_t  *classifier;

    classifier = unit->conf->classifier;

    if (classifier == NULL
        || r->header_only
        || r->method == NGX_HTTP_HEAD
        || r->headers_out.status == NGX_HTTP_NOT_MODIFIED
        || r->headers_out.status == NGX_HTTP_NO_CONTENT
        || r->headers_out.status == NGX_HTTP_SWITCHING_PROTOCOLS
        || !ngx_http_iap_guard_outcome_asked(r, &unit->since))
    {
        return 0;
    }

    state = ngx_http_iap_guard_outcome_state(r, &unit->since);

    if (!ngx_http_iap_guard_outcome_is_sent(r, state)
        && !unit->ctx->fallback.let_go)
    {
        return 0;
    }

    if (classifier->body
        && r->headers_out.status != NGX_HTTP_PARTIAL_CONTENT
        && (r->headers_out.content_encoding == NULL
            || r->headers_out.content_encoding->value.len == 0))
    {
        unit->json = ngx_palloc(r->pool, sizeof(iap_json_t));
    }

    if (unit->json != NULL) {
        iap_json_init(unit->json, classifier->paths, classifier->npaths);
    }

    return 1;
}


ngx_int_t
ngx_http_iap_guard_settle_body(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit->bodiless) {

        /* who sends it could not see that, for the header was held */

        (void) ngx_http_iap_guard_held_drop(r, in);
        return NGX_OK;
    }

    switch (unit->hold) {

    case NGX_HTTP_IAP_GUARD_ANSWER_READ:
        return ngx_http_iap_guard_settle_read(r, unit, in);

    case NGX_HTTP_IAP_GUARD_ANSWER_HELD:
        return ngx_http_iap_guard_held_add(r, &unit->held, in) == NGX_OK
               ? NGX_AGAIN : NGX_ERROR;

    default:
        return NGX_DECLINED;
    }
}


static ngx_int_t
ngx_http_iap_guard_settle_read(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, ngx_chain_t *in)
{
    ngx_uint_t   last, cut;
    iap_body_e   body;

    cut = ngx_http_iap_guard_held_ended(r, in);
    last = 0;

    ngx_http_iap_guard_settle_scan(unit, in, &last);

    if (!last && !cut) {

        if (ngx_http_iap_guard_held_keep(r, &unit->held, in) != NGX_OK) {
            return NGX_ERROR;
        }

        return unit->held.size <= NGX_HTTP_IAP_GUARD_HELD_MAX
               ? NGX_AGAIN
               : ngx_http_iap_guard_settle_read_end(r, unit, IAP_TRANSPORT_OK,
                                                    IAP_BODY_UNREAD);
    }

    if (ngx_http_iap_guard_held_add(r, &unit->held, in) != NGX_OK) {
        return NGX_ERROR;
    }

    if (!last) {
        return ngx_http_iap_guard_settle_read_end(r, unit, IAP_TRANSPORT_CUT,
                                                  IAP_BODY_UNREAD);
    }

    body = unit->length == 0 ? IAP_BODY_NONE
           : unit->json == NULL ? IAP_BODY_UNREAD
           : iap_json_end(unit->json) == IAP_JSON_DONE ? IAP_BODY_JSON
                                                       : IAP_BODY_NOT_JSON;

    return ngx_http_iap_guard_settle_read_end(r, unit, IAP_TRANSPORT_OK,
                                              body);
}


static void
ngx_http_iap_guard_settle_scan(ngx_http_iap_guard_unit_t *unit,
    ngx_chain_t *in, ngx_uint_t *last)
{
    ngx_buf_t   *b;
    iap_view_t   bytes;

    for ( /* void */ ; in != NULL; in = in->next) {
        b = in->buf;

        *last |= b->last_buf;

        if (ngx_buf_special(b)) {
            continue;
        }

        unit->length += ngx_buf_size(b);

        if (!ngx_buf_in_memory(b)) {
            unit->json = NULL;
        }

        if (unit->json != NULL) {
            bytes.data = b->pos;
            bytes.len = b->last - b->pos;

            (void) iap_json_scan(unit->json, bytes);
        }
    }
}


static ngx_int_t
ngx_http_iap_guard_settle_read_end(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_transport_e transport,
    iap_body_e body)
{
    ngx_uint_t                  status;
    ngx_http_iap_guard_fate_e   fate;
    ngx_http_upstream_state_t  *state;

    state = ngx_http_iap_guard_outcome_state(r, &unit->since);
    status = ngx_http_iap_guard_outcome_status(r, state);

    fate = ngx_http_iap_guard_settle_judge(unit, transport, status, body);
    fate = ngx_http_iap_guard_settle_doubt(r, unit, fate);

    ngx_http_iap_guard_settle_as(unit, fate, status, 1);

    unit->hold = NGX_HTTP_IAP_GUARD_ANSWER_FREE;

    return ngx_http_iap_guard_settle_hold(r, unit) == NGX_OK
           ? NGX_AGAIN : ngx_http_iap_guard_settle_go_on(r, unit);
}


/* the header, and what was held of the body */

static ngx_int_t
ngx_http_iap_guard_settle_go_on(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit)
{
    ngx_int_t     rc;
    ngx_chain_t  *held;

    unit->hold = NGX_HTTP_IAP_GUARD_ANSWER_FREE;
    r->buffered &= ~NGX_HTTP_IAP_GUARD_BUFFERED;

    held = ngx_http_iap_guard_held_take(&unit->held);

    rc = ngx_http_iap_guard_send_header(r, unit->ctx);

    if (rc == NGX_ERROR || rc > NGX_OK) {
        return NGX_ERROR;
    }

    if (r->header_only) {
        unit->bodiless = 1;
        (void) ngx_http_iap_guard_held_drop(r, held);
        return rc;
    }

    return held != NULL ? ngx_http_iap_guard_next_body(r, held) : rc;
}


/*
 * The ledger has told.  Who sends the answer goes on by itself once it can
 * write, as after a slow client; whether it has ended or not.
 */

void
ngx_http_iap_guard_settle_wake(ngx_event_t *ev)
{
    ngx_connection_t           *c;
    ngx_atomic_uint_t           number;
    ngx_http_request_t         *r;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ev->data;
    unit->state = NGX_HTTP_IAP_GUARD_UNIT_OVER;

    if (unit->hold != NGX_HTTP_IAP_GUARD_ANSWER_HELD) {

        /* no header has come yet */

        return;
    }

    r = unit->request;

    if (ngx_http_iap_guard_led_away(r, unit->place)) {
        ngx_http_iap_guard_abandon(r, unit->ctx);
        return;
    }

    c = r->connection;
    number = c->number;

    ngx_http_set_log_request(c->log, r);

    if (ngx_http_iap_guard_settle_go_on(r, unit) == NGX_ERROR) {
        ngx_http_finalize_request(r, NGX_ERROR);

    } else {
        r->write_event_handler(r);
    }

    ngx_http_iap_guard_run_posted(c, number);
}
