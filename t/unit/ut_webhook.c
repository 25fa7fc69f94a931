/*
 * Webhook signatures against the example of the Standard Webhooks
 * specification and its libraries, and against openssl's own HMAC.
 */

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "iap_webhook.h"
#include "ut.h"


#define UT_SECRET  "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

#define UT_LEN(a)  (sizeof(a) / sizeof((a)[0]))


static void ut_vector(void);
static void ut_secrets(void);
static void ut_refused(void);
static void ut_random_bodies(void);
static iap_view_t ut_view(const char *text);


int
main(void)
{
    ut_vector();
    ut_secrets();
    ut_refused();
    ut_random_bodies();

    return ut_done();
}


static iap_view_t
ut_view(const char *text)
{
    iap_view_t  view;

    view.data = (const uint8_t *) text;
    view.len = strlen(text);

    return view;
}


static void
ut_vector(void)
{
    uint8_t               signature[IAP_WEBHOOK_SIGNATURE_LEN + 1];
    iap_webhook_secret_t  secret;

    static const char  expected[] =
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    ut_ok(iap_webhook_secret_read(ut_view(UT_SECRET), &secret) == NULL,
          "the secret of the specification is read");
    ut_ok(secret.len == 24, "and has 24 bytes");

    memset(signature, '!', sizeof(signature));

    ut_ok(iap_webhook_sign(&secret, ut_view("msg_p5jXN8AQM9LWM0D4loKWxJek"),
                           1614265330, ut_view("{\"test\": 2432232314}"),
                           signature),
          "its message is signed");
    ut_ok(memcmp(signature, expected, IAP_WEBHOOK_SIGNATURE_LEN) == 0,
          "with its signature");
    ut_ok(signature[IAP_WEBHOOK_SIGNATURE_LEN] == '!',
          "and nothing is written behind that");
}


static void
ut_secrets(void)
{
    unsigned              len, i;
    uint8_t               bytes[IAP_WEBHOOK_SECRET_MAX + 1];
    char                  text[sizeof("whsec_") + 100];
    const char           *words;
    iap_webhook_secret_t  secret;

    for (i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t) (251 * i + 7);
    }

    memcpy(text, "whsec_", 6);

    for (len = 22; len <= sizeof(bytes); len++) {
        (void) EVP_EncodeBlock((unsigned char *) text + 6, bytes, (int) len);
        memset(&secret, 0, sizeof(secret));

        words = iap_webhook_secret_read(ut_view(text), &secret);

        if (len < IAP_WEBHOOK_SECRET_MIN || len > IAP_WEBHOOK_SECRET_MAX) {
            ut_ok(words != NULL && secret.len == 0, "%u bytes: refused", len);

        } else {
            ut_ok(words == NULL && secret.len == len
                  && memcmp(secret.bytes, bytes, len) == 0,
                  "%u bytes: as they were", len);
        }
    }
}


static void
ut_refused(void)
{
    size_t                i;
    const char           *words;
    iap_webhook_secret_t  secret;

    static const char *const  texts[] = {
        "",
        "whsec_",
        "whsec",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
        "whsec_ MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa==MfKQ",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS-",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ===",
        "whsec_================================",
        "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwM==",
    };

    for (i = 0; i < UT_LEN(texts); i++) {
        memset(&secret, 0, sizeof(secret));
        words = iap_webhook_secret_read(ut_view(texts[i]), &secret);

        ut_ok(words != NULL && strstr(words, "whsec_") != NULL
              && secret.len == 0,
              "refused, with what was expected: \"%.20s...\"", texts[i]);
    }
}


static void
ut_random_bodies(void)
{
    char                  number[32];
    size_t                i, n;
    uint8_t               body[300], text[400], signature[60], letters[60];
    uint8_t               digest[32];
    unsigned              trial, len, wrong;
    uint64_t              seed, stamp;
    iap_view_t            id, view;
    iap_webhook_secret_t  secret;

    seed = 5;
    wrong = 0;

    for (trial = 0; trial < 500; trial++) {
        secret.len = (uint8_t) (24 + ut_below(&seed, 41));

        for (i = 0; i < secret.len; i++) {
            secret.bytes[i] = (uint8_t) ut_random(&seed);
        }

        view.data = body;
        view.len = ut_below(&seed, sizeof(body));

        for (i = 0; i < view.len; i++) {
            body[i] = (uint8_t) ut_random(&seed);
        }

        id = ut_view("msg_0");
        stamp = ut_random(&seed) >> ut_below(&seed, 64);

        n = (size_t) snprintf(number, sizeof(number), "msg_0.%" PRIu64 ".",
                              stamp);
        memcpy(text, number, n);
        memcpy(text + n, body, view.len);

        HMAC(EVP_sha256(), secret.bytes, secret.len, text, n + view.len,
             digest, &len);
        (void) EVP_EncodeBlock(letters, digest, 32);

        if (!iap_webhook_sign(&secret, id, stamp, view, signature)
            || memcmp(signature, "v1,", 3) != 0
            || memcmp(signature + 3, letters, 44) != 0)
        {
            wrong++;
        }
    }

    ut_ok(wrong == 0, "500 of any secret, time and body: as HMAC() has them");
}
