/*
 * The directives that test modules of a link have.
 */

#include "ngx_iap_test_redis.h"


static char *ngx_iap_test_set_addrs(ngx_conf_t *cf, ngx_iap_node_t *node);


char *
ngx_iap_test_set_node(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t       *value;
    ngx_url_t        u;
    ngx_iap_node_t  *node;

    value = cf->args->elts;
    node = (ngx_iap_node_t *) ((char *) conf + cmd->offset);

    ngx_memzero(&u, sizeof(ngx_url_t));
    u.url = value[1];
    u.default_port = 6379;
    u.no_resolve = 1;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        return u.err ? u.err : NGX_CONF_ERROR;
    }

    node->name = value[1];
    node->host = u.host;
    node->port = u.port;

    if (u.naddrs) {
        node->sockaddr = u.addrs[0].sockaddr;
        node->socklen = u.addrs[0].socklen;
    }

    if (ngx_strlchr(u.host.data, u.host.data + u.host.len, ',')) {
        return ngx_iap_test_set_addrs(cf, node);
    }

    return NGX_CONF_OK;
}


/* "127.0.0.2,127.0.0.1:6379" is a name that has these addresses */

static char *
ngx_iap_test_set_addrs(ngx_conf_t *cf, ngx_iap_node_t *node)
{
    u_char      *p, *comma, *last;
    ngx_addr_t  *addr;

    node->addrs = ngx_pcalloc(cf->pool, (node->host.len / 2 + 1)
                                        * sizeof(ngx_addr_t));
    if (node->addrs == NULL) {
        return NGX_CONF_ERROR;
    }

    last = node->host.data + node->host.len;

    for (p = node->host.data; p < last; p = comma + 1) {
        comma = ngx_strlchr(p, last, ',');
        comma = comma ? comma : last;

        addr = &node->addrs[node->naddrs++];

        if (ngx_parse_addr(cf->pool, addr, p, comma - p) != NGX_OK) {
            return "has an invalid address";
        }

        ngx_inet_set_port(addr->sockaddr, node->port);
    }

    return NGX_CONF_OK;
}


char *
ngx_iap_test_set_resolver(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t            *value;
    ngx_iap_link_conf_t  *link;

    value = cf->args->elts;
    link = (ngx_iap_link_conf_t *) ((char *) conf + cmd->offset);

    link->resolver_timeout = 2000;
    link->resolver = ngx_resolver_create(cf, &value[1], 1);

    return link->resolver ? NGX_CONF_OK : NGX_CONF_ERROR;
}
