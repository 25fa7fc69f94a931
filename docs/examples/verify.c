/*
 * Verifies a webhook (Standard Webhooks): that it was sent by whoever knows the
 * secret, just now, and as it is.
 *
 *     cc -o verify verify.c -lcrypto
 *     ./verify SECRET_FILE ID TIMESTAMP SIGNATURE < BODY
 *
 * ID, TIMESTAMP and SIGNATURE are the fields webhook-id, webhook-timestamp and
 * webhook-signature.  Exit status 0: it is good; 1: it is not; 2: wrong use.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>


#define TOLERANCE  300      /* seconds that clocks may differ */
#define BODY_MAX   (1024 * 1024)
#define SECRET_MAX 64


/* the bytes of "whsec_" and base64; 0: it is none */

static size_t
read_secret(const char *path, unsigned char *secret)
{
    FILE  *file;
    char   line[256], *base64;
    int    n, padding;

    file = fopen(path, "r");

    if (file == NULL || fgets(line, sizeof(line), file) == NULL) {
        return 0;
    }

    fclose(file);
    line[strcspn(line, "\r\n \t")] = '\0';

    if (strncmp(line, "whsec_", 6) != 0) {
        return 0;
    }

    base64 = line + 6;
    n = (int) strlen(base64);

    if (n % 4 != 0 || n / 4 * 3 > SECRET_MAX + 2) {
        return 0;
    }

    padding = n > 0 && base64[n - 1] == '=' ? 1 : 0;
    padding += n > 1 && base64[n - 2] == '=' ? 1 : 0;

    n = EVP_DecodeBlock(secret, (unsigned char *) base64, n);

    return n > padding ? (size_t) (n - padding) : 0;
}


/* id '.' timestamp '.' body, signed, in base64 */

static int
sign(const unsigned char *secret, size_t secret_len, const char *id,
    const char *timestamp, const unsigned char *body, size_t body_len,
    char *signature)
{
    size_t         len;
    unsigned       n;
    unsigned char  mac[EVP_MAX_MD_SIZE], *signed_text;

    len = strlen(id) + strlen(timestamp) + 2;

    signed_text = malloc(len + body_len + 1);
    if (signed_text == NULL) {
        return 0;
    }

    sprintf((char *) signed_text, "%s.%s.", id, timestamp);
    memcpy(signed_text + len, body, body_len);

    if (HMAC(EVP_sha256(), secret, (int) secret_len, signed_text,
             len + body_len, mac, &n)
        == NULL)
    {
        n = 0;
    }

    free(signed_text);
    EVP_EncodeBlock((unsigned char *) signature, mac, (int) n);

    return n != 0;
}


/* the field may hold several, separated by blanks: one of them is enough */

static int
is_among(const char *field, const char *signature)
{
    size_t       len, wanted;
    const char  *p;

    wanted = strlen(signature);

    for (p = field; *p != '\0'; p += len + (p[len] == ' ')) {
        len = strcspn(p, " ");

        if (len == wanted + 3
            && strncmp(p, "v1,", 3) == 0
            && CRYPTO_memcmp(p + 3, signature, wanted) == 0)
        {
            return 1;
        }
    }

    return 0;
}


int
main(int argc, char **argv)
{
    char                  *end, signature[2 * EVP_MAX_MD_SIZE];
    size_t                 len, secret_len;
    long long              timestamp, off;
    unsigned char          secret[SECRET_MAX + 3];
    static unsigned char   body[BODY_MAX];

    if (argc != 5) {
        fprintf(stderr, "usage: verify SECRET_FILE ID TIMESTAMP SIGNATURE"
                        " < BODY\n");
        return 2;
    }

    secret_len = read_secret(argv[1], secret);

    if (secret_len == 0) {
        fprintf(stderr, "no secret in %s\n", argv[1]);
        return 2;
    }

    timestamp = strtoll(argv[3], &end, 10);
    off = (long long) time(NULL) - timestamp;

    if (end == argv[3] || *end != '\0' || off > TOLERANCE
        || off < -TOLERANCE)
    {
        return 1;
    }

    len = fread(body, 1, sizeof(body), stdin);

    return sign(secret, secret_len, argv[2], argv[3], body, len, signature)
           && is_among(argv[4], signature) ? 0 : 1;
}
