/* Requests as bytes: there and back, and what is refused. */

#include "iap_record.h"
#include "ut.h"


static iap_view_t
view(const char *s)
{
    return (iap_view_t) { (const uint8_t *) s, strlen(s) };
}


static bool
same(iap_view_t a, iap_view_t b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}


/* on the heap and of the exact size, for AddressSanitizer to watch */

static bool
there_and_back(const iap_record_t *record, const char *want)
{
    bool           ok;
    size_t         size;
    uint8_t       *bytes;
    unsigned       i;
    iap_view_t     v;
    iap_record_t   back;

    size = iap_record_size(record);
    if (size == 0) {
        return false;
    }

    bytes = malloc(size);
    iap_record_write(record, bytes);

    v.data = bytes;
    v.len = size;
    memset(&back, 0x5a, sizeof(back));

    ok = iap_record_read(&back, v)
         && same(back.method, record->method) && same(back.uri, record->uri)
         && same(back.body, record->body) && back.nfields == record->nfields
         && same(back.code, record->code) && same(back.token, record->token);

    for (i = 0; ok && i < record->nfields; i++) {
        ok = same(back.fields[i].name, record->fields[i].name)
             && same(back.fields[i].value, record->fields[i].value);
    }

    ok = ok && (want == NULL || same(v, view(want)));
    free(bytes);

    return ok;
}


static iap_record_t
sample(void)
{
    iap_record_t  r;

    memset(&r, 0, sizeof(r));
    r.method = view("POST");
    r.uri = view("/v1/verify?a=1");
    r.fields[0].name = view("Content-Type");
    r.fields[0].value = view("application/json");
    r.fields[1].name = view("X-Empty");
    r.fields[1].value = view("");
    r.nfields = 2;
    r.body = view("{\"a\": 1}\n\nb: c\n");

    return r;
}


static void
good(void)
{
    unsigned      i;
    iap_record_t  r;

    r = sample();
    ut_ok(there_and_back(&r, "1\nPOST /v1/verify?a=1\n"
                             "Content-Type: application/json\nX-Empty: \n\n"
                             "{\"a\": 1}\n\nb: c\n"),
          "as the layout says");

    r.body.data = NULL;
    r.body.len = 0;
    ut_ok(there_and_back(&r, NULL), "without a body");

    r.body = (iap_view_t) { (const uint8_t *) "\0\n\0\r\n\xff", 6 };
    ut_ok(there_and_back(&r, NULL), "any byte in the body");

    r.fields[1].value = (iap_view_t) { (const uint8_t *) " :\0\r: ", 6 };
    r.uri = view("/a b: c");
    ut_ok(there_and_back(&r, NULL), "marks where they mean nothing");

    r.nfields = 0;
    ut_ok(there_and_back(&r, NULL), "without fields");

    for (i = 0; i < IAP_RECORD_FIELDS_MAX; i++) {
        r.fields[i].name = view("Name");
        r.fields[i].value = view("value");
    }

    r.nfields = IAP_RECORD_FIELDS_MAX;
    ut_ok(there_and_back(&r, NULL), "all the fields there may be");

    r.nfields = 1;
    r.code = view("SPRING-24");
    r.token = view("abc");
    r.body = view("x");
    ut_ok(there_and_back(&r, "2\nSPRING-24 abc\nPOST /a b: c\n"
                             "Name: value\n\nx"), "with a unit");
}


static void
unwritable(void)
{
    iap_record_t  r;

#define refused(change, why)                                                  \
    r = sample();                                                             \
    change;                                                                   \
    ut_ok(iap_record_size(&r) == 0, "can't be written: " why)

    refused(r.method = view(""), "no method");
    refused(r.method = view("A B"), "a blank in the method");
    refused(r.method = view("A\n"), "a line end in the method");
    refused(r.uri = view(""), "no URI");
    refused(r.uri = view("/\nX: y"), "a line end in the URI");
    refused(r.fields[1].name = view(""), "a field without a name");
    refused(r.fields[1].name = view("a:b"), "a colon in a name");
    refused(r.fields[1].name = view("a\nb"), "a line end in a name");
    refused(r.fields[1].value = view("a\n"), "a line end in a value");
    refused(r.nfields = IAP_RECORD_FIELDS_MAX + 1, "too many fields");
    refused(r.code = view("A"), "a code without a token");
    refused(r.code = view("A B"); r.token = view("t"), "a blank in a code");
    refused(r.code = view("A\n"); r.token = view("t"), "a line end in it");
    refused(r.code = view("A"); r.token = view("t\n"), "and in a token");
#undef refused
}


static bool
reads(const char *text, size_t len)
{
    bool           ok;
    uint8_t       *bytes;
    iap_record_t   r;

    bytes = malloc(len ? len : 1);
    memcpy(bytes, text, len);
    ok = iap_record_read(&r, (iap_view_t) { bytes, len });
    free(bytes);

    return ok;
}


static void
unreadable(void)
{
    size_t       i;
    char         many[4 + 8 + (IAP_RECORD_FIELDS_MAX + 1) * 5 + 1], *p;
    const char  *whole = "1\nPOST /a\nA: b\nC: d\n\n";

    static const char  *bad[] = {
        "2\nPOST /a\n\n", "3\nPOST /a\n\n", "2\nA\nPOST /a\n\n",
        "2\nA \nPOST /a\n\n", "2\n t\nPOST /a\n\n", "\n\n\n", "1", "1\n", "11\nPOST /a\n\n",
        "P\nPOST /a\n\n", "1\nPOST\n\n", "1\n /a\n\n", "1\nPOST \n\n",
        "1\n\n\n", "1\nPOST /a\nA b\n\n", "1\nPOST /a\nA:b\n\n",
        "1\nPOST /a\nA:\n\n", "1\nPOST /a\n: b\n\n"
    };

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ut_ok(!reads(bad[i], strlen(bad[i])), "no record: %zu", i);
    }

    ut_ok(reads(whole, strlen(whole)), "a record");

    for (i = 0; i < strlen(whole); i++) {
        if (reads(whole, i)) {
            break;
        }
    }

    ut_ok(i == strlen(whole), "the beginning of one is none, however long");

    p = many + sprintf(many, "1\nA /a\n");

    for (i = 0; i <= IAP_RECORD_FIELDS_MAX; i++) {
        p += sprintf(p, "A: b\n");
    }

    p += sprintf(p, "\n");
    ut_ok(!reads(many, (size_t) (p - many)), "too many fields");
}


/* whatever it is that is read, nothing else is touched */

static void
random_bytes(void)
{
    char      text[64];
    size_t    i, len;
    uint64_t  seed;
    unsigned  n, found;

    static const char  letters[] = "1\n\n :AB/";

    seed = 3;
    found = 0;

    for (n = 0; n < 200000; n++) {
        len = 2 + ut_below(&seed, sizeof(text) - 2);
        memcpy(text, "1\n", 2);

        for (i = 2; i < len; i++) {
            text[i] = letters[ut_below(&seed, sizeof(letters) - 1)];
        }

        found += reads(text, len);
    }

    ut_ok(found > 100, "%u of 200000 random texts are records", found);
}


int
main(void)
{
    good();
    unwritable();
    unreadable();
    random_bytes();

    return ut_done();
}
