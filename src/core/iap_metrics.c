/*
 * Metrics as text: the Prometheus exposition format 0.0.4.
 */

#include <string.h>

#include "iap_metrics.h"
#include "iap_utf8.h"


typedef struct {
    const char  *name;
    const char  *type;
    const char  *labels;
    const char  *help;
} iap_metric_t;


static void iap_text_str(iap_text_t *out, const char *s);
static void iap_text_bytes(iap_text_t *out, const uint8_t *data, size_t len);
static void iap_text_uint(iap_text_t *out, uint64_t value);
static void iap_text_seconds(iap_text_t *out, uint64_t us);
static void iap_text_help(iap_text_t *out, const char *s);
static void iap_text_label(iap_text_t *out, iap_view_t value);


static const iap_metric_t  iap_metrics[IAP_METRIC_COUNT] = {
#define IAP_METRIC_ROW(id, name, type, labels, help)                          \
    [IAP_METRIC_##id] = { name, type, labels, help },
    IAP_METRICS(IAP_METRIC_ROW)
#undef IAP_METRIC_ROW
};


void
iap_text_put(iap_text_t *out, iap_view_t bytes)
{
    out->need += bytes.len;

    if (bytes.len == 0 || out->pos == NULL) {
        return;
    }

    if (bytes.len > (size_t) (out->end - out->pos)) {

        /* nothing shorter may follow after the gap */

        out->end = out->pos;
        return;
    }

    memcpy(out->pos, bytes.data, bytes.len);
    out->pos += bytes.len;
}


void
iap_metric_begin(iap_text_t *out, iap_metric_e metric)
{
    const iap_metric_t  *m;

    m = &iap_metrics[metric];

    iap_text_str(out, "# HELP ");
    iap_text_str(out, m->name);
    iap_text_str(out, " ");
    iap_text_help(out, m->help);
    iap_text_str(out, "\n# TYPE ");
    iap_text_str(out, m->name);
    iap_text_str(out, " ");
    iap_text_str(out, m->type);
    iap_text_str(out, "\n");
}


void
iap_metric_sample(iap_text_t *out, iap_metric_e metric,
    const iap_view_t *values, uint64_t value)
{
    size_t               len;
    const char          *label;
    const iap_metric_t  *m;

    m = &iap_metrics[metric];

    iap_text_str(out, m->name);

    for (label = m->labels; *label != '\0'; label += len) {

        if (label == m->labels) {
            iap_text_str(out, "{");

        } else {
            iap_text_str(out, ",");
            label++;
        }

        len = strcspn(label, ",");

        iap_text_bytes(out, (const uint8_t *) label, len);
        iap_text_str(out, "=\"");
        iap_text_label(out, *values++);
        iap_text_str(out, "\"");
    }

    if (label != m->labels) {
        iap_text_str(out, "}");
    }

    iap_text_str(out, " ");
    iap_text_uint(out, value);
    iap_text_str(out, "\n");
}


void
iap_metric_histogram(iap_text_t *out, iap_metric_e metric,
    const uint64_t *bounds, size_t n, const uint64_t *counts, uint64_t sum)
{
    size_t       i;
    uint64_t     total;
    const char  *name;

    name = iap_metrics[metric].name;
    total = 0;

    for (i = 0; i <= n; i++) {
        total += counts[i];

        iap_text_str(out, name);
        iap_text_str(out, "_bucket{le=\"");

        if (i < n) {
            iap_text_seconds(out, bounds[i]);

        } else {
            iap_text_str(out, "+Inf");
        }

        iap_text_str(out, "\"} ");
        iap_text_uint(out, total);
        iap_text_str(out, "\n");
    }

    iap_text_str(out, name);
    iap_text_str(out, "_sum ");
    iap_text_seconds(out, sum);
    iap_text_str(out, "\n");

    iap_text_str(out, name);
    iap_text_str(out, "_count ");
    iap_text_uint(out, total);
    iap_text_str(out, "\n");
}


static void
iap_text_str(iap_text_t *out, const char *s)
{
    iap_text_bytes(out, (const uint8_t *) s, strlen(s));
}


static void
iap_text_bytes(iap_text_t *out, const uint8_t *data, size_t len)
{
    iap_view_t  bytes;

    bytes.data = data;
    bytes.len = len;

    iap_text_put(out, bytes);
}


static void
iap_text_uint(iap_text_t *out, uint64_t value)
{
    uint8_t   buf[20];
    uint8_t  *p;

    p = buf + sizeof(buf);

    do {
        *--p = (uint8_t) ('0' + value % 10);
        value /= 10;
    } while (value != 0);

    iap_text_bytes(out, p, (size_t) (buf + sizeof(buf) - p));
}


/* without zeros at the end of the fraction */

static void
iap_text_seconds(iap_text_t *out, uint64_t us)
{
    size_t    len;
    uint64_t  fraction;
    uint8_t   buf[7];

    iap_text_uint(out, us / 1000000);

    fraction = us % 1000000;

    if (fraction == 0) {
        return;
    }

    buf[0] = '.';

    for (len = 6; len > 0; len--) {
        buf[len] = (uint8_t) ('0' + fraction % 10);
        fraction /= 10;
    }

    for (len = sizeof(buf); buf[len - 1] == '0'; len--) { /* void */ }

    iap_text_bytes(out, buf, len);
}


/* in help, unlike in a label's value, a quote stands for itself */

static void
iap_text_help(iap_text_t *out, const char *s)
{
    size_t  len;

    for ( ;; ) {
        len = strcspn(s, "\\\n");
        iap_text_bytes(out, (const uint8_t *) s, len);
        s += len;

        if (*s == '\0') {
            return;
        }

        iap_text_str(out, *s == '\n' ? "\\n" : "\\\\");
        s++;
    }
}


static void
iap_text_label(iap_text_t *out, iap_view_t value)
{
    size_t          len, left;
    const uint8_t  *p;

    p = value.data;

    for (left = value.len; left > 0; left -= len, p += len) {

        len = iap_utf8_len(p, left);

        if (len == 0) {
            iap_text_str(out, "\xef\xbf\xbd");
            len = 1;
            continue;
        }

        switch (*p) {

        case '\n':
            iap_text_str(out, "\\n");
            break;

        case '\\':
            iap_text_str(out, "\\\\");
            break;

        case '"':
            iap_text_str(out, "\\\"");
            break;

        default:
            iap_text_bytes(out, p, len);
        }
    }
}
