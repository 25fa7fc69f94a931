/*
 * What of a ledger's file is known to fail before it is opened: for nginx -t.
 * Nothing is made, and nothing is opened but to read its header.
 *
 * Rights are looked up rather than tried: this runs as root, and the workers
 * will not.  Where there are access control lists, they are not known here, and
 * nothing is refused.
 */

#include "ngx_iap_file.h"
#include "ngx_iap_file_db.h"

#include <grp.h>
#include <pwd.h>
#include <sys/xattr.h>


#define NGX_IAP_FILE_GROUPS  256


typedef struct {
    ngx_conf_t  *cf;
    ngx_str_t   *path;
    uid_t        uid;
    ngx_uint_t   known;         /* who it will be */
    gid_t        groups[NGX_IAP_FILE_GROUPS];
    int          ngroups;
} ngx_iap_file_who_t;


static ngx_int_t ngx_iap_file_check_names(ngx_conf_t *cf,
    ngx_iap_file_conf_t *conf);
static void ngx_iap_file_check_who(ngx_iap_file_who_t *who, ngx_uid_t user);
static ngx_int_t ngx_iap_file_check_folders(ngx_iap_file_who_t *who,
    u_char *path);
static ngx_int_t ngx_iap_file_check_folder(ngx_iap_file_who_t *who,
    const char *name, ngx_uint_t rights);
static ngx_int_t ngx_iap_file_check_file(ngx_iap_file_who_t *who,
    const char *name);
static ngx_uint_t ngx_iap_file_may(ngx_iap_file_who_t *who, const char *name,
    struct stat *st, ngx_uint_t rights);


ngx_int_t
ngx_iap_file_check(ngx_conf_t *cf, ngx_iap_file_conf_t *conf, ngx_uid_t user)
{
    char                 reason[NGX_IAP_FILE_REASON];
    u_char              *name, *end;
    ngx_uint_t           i;
    ngx_iap_file_who_t   who;

    static const char  *suffixes[] = { "", "-wal", "-shm" };

    if (ngx_iap_file_check_names(cf, conf) != NGX_OK) {
        return NGX_ERROR;
    }

    who.cf = cf;
    who.path = &conf->path;
    ngx_iap_file_check_who(&who, user);

    name = ngx_pnalloc(cf->pool, conf->path.len + sizeof("-wal"));
    if (name == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(name, conf->path.data, conf->path.len + 1);

    if (ngx_iap_file_check_folders(&who, name) != NGX_OK) {
        return NGX_ERROR;
    }

    end = name + conf->path.len;

    for (i = 0; i < sizeof(suffixes) / sizeof(char *); i++) {
        (void) ngx_cpystrn(end, (u_char *) suffixes[i], sizeof("-wal"));

        if (ngx_iap_file_check_file(&who, (char *) name) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (ngx_iap_file_check_file(&who, (char *) conf->lock.data) != NGX_OK
        || ngx_iap_file_check_file(&who, (char *) conf->drain.data) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_iap_file_db_look((char *) conf->path.data, reason,
                             sizeof(reason))
        != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "iap_guard ledger \"%V\" can't be used: %s",
                           &conf->path, reason);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_check_names(ngx_conf_t *cf, ngx_iap_file_conf_t *conf)
{
    u_char      *p;
    size_t       len;
    ngx_uint_t   i;
    ngx_str_t   *name;

    static ngx_str_t  suffixes[] = {
        ngx_string(".lock"), ngx_string(".drain")
    };

    if (conf->path.len < 2
        || conf->path.data[0] != '/'
        || conf->path.data[conf->path.len - 1] == '/')
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid path \"%V\" of a ledger, expected that of "
                           "a file", &conf->path);
        return NGX_ERROR;
    }

    len = conf->path.len;

    if (len > 3 && ngx_strncmp(conf->path.data + len - 3, ".db", 3) == 0) {
        len -= 3;
    }

    for (i = 0; i < 2; i++) {
        name = i == 0 ? &conf->lock : &conf->drain;

        p = ngx_pnalloc(cf->pool, len + suffixes[i].len + 1);
        if (p == NULL) {
            return NGX_ERROR;
        }

        name->data = p;
        p = ngx_cpymem(p, conf->path.data, len);
        p = ngx_cpymem(p, suffixes[i].data, suffixes[i].len);
        name->len = p - name->data;
        *p = '\0';
    }

    return NGX_OK;
}


/* workers are this process's user unless this is root */

static void
ngx_iap_file_check_who(ngx_iap_file_who_t *who, ngx_uid_t user)
{
    int             n;
    struct passwd  *pw;

    who->uid = geteuid() == 0 ? user : geteuid();
    who->ngroups = 0;
    who->known = 0;

    if (who->uid == (uid_t) NGX_CONF_UNSET_UINT) {
        return;
    }

    if (geteuid() != 0) {
        n = getgroups(NGX_IAP_FILE_GROUPS - 1, who->groups);

        if (n >= 0) {
            who->groups[n] = getegid();
            who->ngroups = n + 1;
            who->known = 1;
        }

        return;
    }

    pw = getpwuid(who->uid);

    if (pw != NULL) {
        n = NGX_IAP_FILE_GROUPS;

        if (getgrouplist(pw->pw_name, pw->pw_gid, who->groups, &n) != -1) {
            who->ngroups = n;
            who->known = 1;
        }
    }
}


/* path is changed, and restored */

static ngx_int_t
ngx_iap_file_check_folders(ngx_iap_file_who_t *who, u_char *path)
{
    u_char      *slash, *next;
    ngx_int_t    rc;
    ngx_uint_t   rights;

    if (ngx_strchr(path + 1, '/') == NULL) {
        return ngx_iap_file_check_folder(who, "/", 03);
    }

    for (slash = (u_char *) ngx_strchr(path + 1, '/');
         slash != NULL;
         slash = next)
    {
        next = (u_char *) ngx_strchr(slash + 1, '/');
        rights = next == NULL ? 03 : 01;

        *slash = '\0';
        rc = ngx_iap_file_check_folder(who, (char *) path, rights);
        *slash = '/';

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_check_folder(ngx_iap_file_who_t *who, const char *name,
    ngx_uint_t rights)
{
    struct stat  st;

    if (stat(name, &st) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, who->cf, ngx_errno,
                           "iap_guard ledger \"%V\" can't be used: its folder "
                           "\"%s\" can't be found", who->path, name);
        return NGX_ERROR;
    }

    if (!S_ISDIR(st.st_mode)) {
        ngx_conf_log_error(NGX_LOG_EMERG, who->cf, 0,
                           "iap_guard ledger \"%V\" can't be used: \"%s\" is "
                           "no folder", who->path, name);
        return NGX_ERROR;
    }

    if (!ngx_iap_file_may(who, name, &st, rights)) {
        ngx_conf_log_error(NGX_LOG_EMERG, who->cf, 0,
                           "iap_guard ledger \"%V\" can't be used: the user of "
                           "the workers (%ui) may not %s the folder \"%s\"",
                           who->path, (ngx_uint_t) who->uid,
                           rights == 01 ? "enter" : "write to", name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* one that is not there will be made */

static ngx_int_t
ngx_iap_file_check_file(ngx_iap_file_who_t *who, const char *name)
{
    struct stat  st;

    if (stat(name, &st) == -1) {

        if (ngx_errno == NGX_ENOENT) {
            return NGX_OK;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, who->cf, ngx_errno,
                           "iap_guard ledger \"%V\" can't be used: \"%s\" "
                           "can't be looked at", who->path, name);
        return NGX_ERROR;
    }

    if (!S_ISREG(st.st_mode)) {
        ngx_conf_log_error(NGX_LOG_EMERG, who->cf, 0,
                           "iap_guard ledger \"%V\" can't be used: \"%s\" is "
                           "not a regular file", who->path, name);
        return NGX_ERROR;
    }

    if (!ngx_iap_file_may(who, name, &st, 06)) {
        ngx_conf_log_error(NGX_LOG_EMERG, who->cf, 0,
                           "iap_guard ledger \"%V\" can't be used: the user of "
                           "the workers (%ui) may not write to \"%s\"",
                           who->path, (ngx_uint_t) who->uid, name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_iap_file_may(ngx_iap_file_who_t *who, const char *name, struct stat *st,
    ngx_uint_t rights)
{
    int         i;
    ngx_uint_t  shift;

    if (!who->known || who->uid == 0) {
        return 1;
    }

    shift = 0;

    if (st->st_uid == who->uid) {
        shift = 6;

    } else {
        for (i = 0; i < who->ngroups; i++) {
            if (st->st_gid == who->groups[i]) {
                shift = 3;
                break;
            }
        }
    }

    if ((((ngx_uint_t) st->st_mode >> shift) & rights) == rights) {
        return 1;
    }

    return getxattr(name, "system.posix_acl_access", NULL, 0) > 0;
}
