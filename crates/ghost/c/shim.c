/*
 * Everything that depends on the layout of Varnish's own structs, and nothing else: no decision is made here.
 * Compiled anew for every version of Varnish; $ABI strict keeps varnishd from loading it into another.
 */

#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>
#include <sys/socket.h>

#include "engine.h"
#include "private.h"
#include "vrt_obj.h"
#include "vsa.h"
#include "vtim.h"

#include "tunnel.h"

/* varnishd looks the descriptor up by name: a Rust static, filled before main(). */
#undef Vmod_ghost_Data
extern const struct vmod_data Vmod_ghost_Data_c;
extern char Vmod_ghost_Data[256];

__attribute__((constructor)) static void
gs_export_descriptor(void)
{
	_Static_assert(sizeof Vmod_ghost_Data_c <= 256, "descriptor");
	memcpy(Vmod_ghost_Data, &Vmod_ghost_Data_c, sizeof Vmod_ghost_Data_c);
}

/*--------------------------------------------------------------------
 * Messages: client request, backend request, response
 */

struct http *gs_req(VRT_CTX) { return (ctx->http_req); }
struct http *gs_bereq(VRT_CTX) { return (ctx->http_bereq); }
struct http *gs_beresp(VRT_CTX) { return (ctx->http_beresp); }
struct http *gs_resp(VRT_CTX) { return (ctx->http_resp); }
unsigned gs_status(const struct http *hp) { return (http_GetStatus(hp)); }

static struct gs_text
gs_field(const struct http *hp, unsigned n)
{
	struct gs_text t = { hp->hd[n].b, hp->hd[n].b == NULL ? 0 : Tlen(hp->hd[n]) };
	return (t);
}

struct gs_text gs_method(const struct http *hp) { return (gs_field(hp, HTTP_HDR_METHOD)); }
struct gs_text gs_url(const struct http *hp) { return (gs_field(hp, HTTP_HDR_URL)); }
struct gs_text gs_proto(const struct http *hp) { return (gs_field(hp, HTTP_HDR_PROTO)); }

/* Names begin alike (X-) and seldom end alike: look at the end before calling anything. */
static inline int
gs_begins(const txt *h, const char *start, size_t n)
{
	return (Tlen(*h) > n && ((h->b[n - 1] ^ start[n - 1]) & 0x5f) == 0 && ((h->b[0] ^ start[0]) & 0x5f) == 0 &&
	    strncasecmp(h->b, start, n) == 0);
}

static inline int
gs_is(const txt *h, const char *name, size_t n)
{
	return (Tlen(*h) > n && h->b[n] == ':' && gs_begins(h, name, n));
}

/* The value of the header at or after *at; *at moves behind it. p is NULL where there is none. */
struct gs_text
gs_header(const struct http *hp, const char *name, size_t n, unsigned *at)
{
	struct gs_text t = { NULL, 0 };
	unsigned u;

	for (u = *at < HTTP_HDR_FIRST ? HTTP_HDR_FIRST : *at; u < hp->nhd; u++) {
		if (!gs_is(&hp->hd[u], name, n))
			continue;
		t.p = hp->hd[u].b + n + 1;
		while (*t.p == ' ' || *t.p == '\t')
			t.p++;
		t.n = (size_t)(hp->hd[u].e - t.p);
		break;
	}
	*at = u + 1;
	return (t);
}

static void
gs_drop(struct http *hp, unsigned u)
{
	VSLbt(hp->vsl, (enum VSL_tag_e)(hp->logtag + HTTP_HDR_UNSET), hp->hd[u]);
}

static void
gs_keep(struct http *hp, unsigned *v, unsigned u)
{
	if (*v != u) {
		hp->hd[*v] = hp->hd[u];
		hp->hdf[*v] = hp->hdf[u];
	}
	(*v)++;
}

/* Removes every header of the name. */
void
gs_remove(struct http *hp, const char *name, size_t n)
{
	unsigned u, v;

	for (u = v = HTTP_HDR_FIRST; u < hp->nhd; u++) {
		if (gs_is(&hp->hd[u], name, n))
			gs_drop(hp, u);
		else
			gs_keep(hp, &v, u);
	}
	hp->nhd = v;
}

/* Removes every header that has one of these names. */
void
gs_remove_any(struct http *hp, const struct gs_text *names, size_t n)
{
	unsigned u, v;
	size_t i;

	for (u = v = HTTP_HDR_FIRST; u < hp->nhd; u++) {
		for (i = 0; i < n && !gs_is(&hp->hd[u], names[i].p, names[i].n); i++)
			continue;
		if (i < n)
			gs_drop(hp, u);
		else
			gs_keep(hp, &v, u);
	}
	hp->nhd = v;
}

/* Removes every header whose name begins so. */
void
gs_remove_prefix(struct http *hp, const char *prefix, size_t n)
{
	unsigned u, v;

	for (u = v = HTTP_HDR_FIRST; u < hp->nhd; u++) {
		if (gs_begins(&hp->hd[u], prefix, n))
			gs_drop(hp, u);
		else
			gs_keep(hp, &v, u);
	}
	hp->nhd = v;
}

#define GS_DROP (1U << 31)

/*
 * One look at all headers: Rust says of each line what it is, in bits, and by GS_DROP that it is to go. Returns the bits of
 * those that stay.
 */
unsigned
gs_survey(struct http *hp, unsigned (*look)(void *priv, const char *line, size_t n), void *priv)
{
	unsigned u, v, bits, found = 0;

	for (u = v = HTTP_HDR_FIRST; u < hp->nhd; u++) {
		bits = look(priv, hp->hd[u].b, Tlen(hp->hd[u]));
		if (bits & GS_DROP) {
			gs_drop(hp, u);
		} else {
			found |= bits;
			gs_keep(hp, &v, u);
		}
	}
	hp->nhd = v;
	return (found);
}

/* A line that outlives the message: not copied. Ends in a zero byte. */
void gs_add_static(struct http *hp, const char *line) { http_SetHeader(hp, line); }

static const char *
gs_copy(struct http *hp, const char *p, size_t n)
{
	char *s = WS_Alloc(hp->ws, n + 1);

	if (s == NULL) {
		/* Varnish fails the task when its workspace has overflowed. */
		WS_MarkOverflow(hp->ws);
		return (NULL);
	}
	memcpy(s, p, n);
	s[n] = '\0';
	return (s);
}

void
gs_add(struct http *hp, const char *line, size_t n)
{
	const char *s = gs_copy(hp, line, n);

	if (s != NULL)
		http_SetHeader(hp, s);
}

/* "name: value" out of two parts. */
void
gs_add_pair(struct http *hp, const char *name, size_t n, const char *value, size_t m)
{
	char *s = WS_Alloc(hp->ws, n + m + 3);

	if (s == NULL) {
		WS_MarkOverflow(hp->ws);
		return;
	}
	memcpy(s, name, n);
	s[n] = ':';
	s[n + 1] = ' ';
	memcpy(s + n + 2, value, m);
	s[n + m + 2] = '\0';
	http_SetHeader(hp, s);
}

/* Has something been lost for want of workspace, or of room for headers (http_max_hdr)? */
int gs_overflowed(const struct http *hp) { return (WS_Overflowed(hp->ws)); }

void
gs_set_url(struct http *hp, const char *url, size_t n)
{
	const char *s = gs_copy(hp, url, n);

	if (s != NULL)
		http_SetH(hp, HTTP_HDR_URL, s);
}

/*--------------------------------------------------------------------
 * The task
 */

const char *gs_local_socket(VRT_CTX) { return (ctx->sp == NULL ? NULL : VRT_r_local_socket(ctx)); }

/* The port that the front took the connection on, which is PROXY's destination; 0 where it did not say. */
unsigned
gs_server_port(VRT_CTX)
{
	VCL_IP ip = ctx->sp == NULL ? NULL : VRT_r_server_ip(ctx);
	return (ip == NULL || !VSA_Sane(ip) ? 0 : VSA_Port(ip));
}

#define GS_PP2_TYPE_AUTHORITY 0x02

#define GS_PP2_SUBTYPE_SSL_VERSION 0x21

static struct gs_text
tlv(const struct req *req, int type)
{
	struct gs_text t = { NULL, 0 };
	const void *p;
	int n;

	if (req == NULL || VPX_tlv(req, type, &p, &n) != 0)
		return (t);
	t.p = p;
	t.n = (size_t)n;
	return (t);
}

/* The name that the client asked for in its TLS handshake. An ESI include may be of another host: no client asked for it. */
struct gs_text
gs_server_name(VRT_CTX)
{
	return (tlv(ctx->req == NULL || ctx->req->esi_level > 0 ? NULL : ctx->req, GS_PP2_TYPE_AUTHORITY));
}

int gs_is_included(VRT_CTX) { return (ctx->req != NULL && ctx->req->esi_level > 0); }

/* As the front says it: TLSv1.3. */
struct gs_text
gs_tls_version(VRT_CTX)
{
	return (tlv(ctx->req, GS_PP2_SUBTYPE_SSL_VERSION));
}

const char *gs_client_ip(VRT_CTX) { return (SES_Get_String_Attr(ctx->sp, SA_CLIENT_IP)); }
int gs_on_backend_side(VRT_CTX) { return (ctx->bo != NULL && ctx->req == NULL); }
int gs_in_synth(VRT_CTX) { return (ctx->method == VCL_MET_SYNTH); }
void gs_hint(VRT_CTX, VCL_BACKEND d) { VRT_l_req_backend_hint(ctx, d); }
VCL_BACKEND gs_hinted(VRT_CTX) { return (ctx->req->director_hint); }
VCL_BACKEND gs_bereq_backend(VRT_CTX) { return (ctx->bo->director_req); }
void gs_fail(VRT_CTX, const char *why) { VRT_fail(ctx, "%s", why); }
void gs_hash(VRT_CTX, const char *p) { VRT_hashdata(ctx, TOSTRAND(p)); }

/*
 * Debian's varnishd allocates by jemalloc, which keeps what was freed until somebody allocates in the same arena. A
 * configuration leaves tens of MiB: back to the system with them. 4096 stands for all arenas.
 */
extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

void
gs_give_memory_back(void)
{
	if (mallctl != NULL)
		(void)mallctl("arena.4096.purge", NULL, NULL, NULL, 0);
}

const char *
gs_ws_copy(VRT_CTX, const char *p, size_t n)
{
	char *s = WS_Alloc(ctx->ws, n + 1);

	if (s == NULL)
		return (NULL);
	memcpy(s, p, n);
	s[n] = '\0';
	return (s);
}

void
gs_log(VRT_CTX, const char *line)
{
	if (ctx->vsl != NULL)
		VSLb(ctx->vsl, SLT_VCL_Log, "%s", line);
	else
		VSL(SLT_VCL_Log, NO_VXID, "%s", line);
}

/* What Rust keeps for one task, in the task's workspace, until the task is over. */
extern void ghost_task_fini(void *, uint64_t bytes, double seconds);
/* lookup.c */
void gs_look_no_more(struct req *);

/* Its answer is on the way, with its last byte; Varnish has noted the time. */
static void
gs_task_fini(VRT_CTX, void *p)
{
	struct req *req = ctx == NULL ? NULL : ctx->req;

	if (req != NULL)
		gs_look_no_more(req);
	if (req == NULL)
		ghost_task_fini(p, 0, 0);
	else
		ghost_task_fini(p, req->acct.resp_hdrbytes + req->acct.resp_bodybytes, req->t_prev - req->t_req);
}

static const struct vmod_priv_methods gs_task_methods[1] = {{
	.magic = VMOD_PRIV_METHODS_MAGIC, .type = "ghost", .fini = gs_task_fini,
}};

void *
gs_task_get(VRT_CTX, const void *id)
{
	struct vmod_priv *p = VRT_priv_task_get(ctx, id);
	return (p == NULL ? NULL : p->priv);
}

/* Memory for the task's state; whoever gets it must call gs_task_set once it is filled. */
void *gs_task_alloc(VRT_CTX, size_t n) { return (WS_Alloc(ctx->ws, n)); }

int
gs_task_set(VRT_CTX, const void *id, void *state)
{
	struct vmod_priv *p = VRT_priv_task(ctx, id);

	if (p == NULL)
		return (-1);
	p->priv = state;
	p->methods = gs_task_methods;
	return (0);
}

/*
 * True once for a fetch, however often user VCL lets it be tried again: the request stays as it was made. After
 * std.rollback(bereq), which ends what is kept for the task, it is as it came, and true is said once more.
 */
int
gs_first_try(VRT_CTX)
{
	static const char id[1], tried[1];
	struct vmod_priv *p = VRT_priv_task(ctx, id);

	if (p == NULL || p->priv != NULL)
		return (p == NULL);
	p->priv = (void *)(uintptr_t)tried;
	return (1);
}

/*--------------------------------------------------------------------
 * The cache
 */

/* The backend request as it was before vcl_backend_fetch. */
struct http *gs_bereq0(VRT_CTX) { return (ctx->bo->bereq0); }
/* A pass, or what was called uncacheable already. */
int gs_uncacheable(VRT_CTX) { return (ctx->bo->uncacheable); }
/* Does the client send a body, or has it sent one? */
int gs_has_body(VRT_CTX) { return (ctx->req != NULL && ctx->req->req_body_status != BS_NONE); }
static int
gs_digest_part(void *priv, unsigned flush, const void *ptr, ssize_t len)
{
	(void)flush;
	if (len > 0)
		VSHA256_Update(priv, ptr, (size_t)len);
	return (0);
}

/* Reads the request's body, which stays for the fetch, and its SHA-256. 0 where it cannot be read. */
int
gs_body_digest(VRT_CTX, size_t most, uint8_t *to)
{
	struct VSHA256Context sha;

	if (ctx->req == NULL || VRT_CacheReqBody(ctx, (VCL_BYTES)most) < 0)
		return (0);
	VSHA256_Init(&sha);
	if (VRB_Iterate(ctx->req->wrk, ctx->vsl, ctx->req, gs_digest_part, &sha) < 0)
		return (0);
	VSHA256_Final(to, &sha);
	return (1);
}

/* By which the origin is asked: Varnish makes GET of what it looks up. */
void gs_ask_by_query(VRT_CTX) { http_SetH(ctx->bo->bereq, HTTP_HDR_METHOD, "QUERY"); }
/* What the fetch's object is found by: 32 bytes. */
const uint8_t *gs_digest(VRT_CTX) { return (ctx->bo->digest); }
/* The name in VCL of the storage that the answer would go to: what lives for seconds only goes to Transient. Varnish does not tell the size of each kind: asked for that of a file,
 * 7.1 dies. */
const char *
gs_storage_name(VRT_CTX)
{
	VCL_STEVEDORE storage = VRT_r_beresp_storage(ctx);
	const struct objcore *oc = ctx->bo->fetch_objcore;

	if (oc->ttl + oc->grace + oc->keep < cache_param->shortlived)
		return ("storage.Transient");
	return (storage == NULL ? NULL : VRT_STEVEDORE_string(storage));
}
int gs_is_bgfetch(VRT_CTX) { return (ctx->bo->is_bgfetch); }
double gs_now(VRT_CTX) { return (ctx->now); }
/* How old the response is now: Varnish counts its Age from there. Before gs_keep_for, which counts from now. */
void gs_set_age(VRT_CTX, double age) { ctx->bo->fetch_objcore->t_origin = ctx->now - age; }
double gs_ttl(VRT_CTX) { return (VRT_r_beresp_ttl(ctx)); }
/* Seconds between the last try of the fetch and its response. */
double
gs_waited(VRT_CTX)
{
	return (ctx->bo->t_resp > ctx->bo->t_first ? ctx->bo->t_resp - ctx->bo->t_first : 0.);
}
/* How many seconds ago the fetch began, earlier tries of it among them. */
double gs_fetch_time(VRT_CTX) { return (ctx->now - ctx->bo->t_first); }

void
gs_keep_for(VRT_CTX, double ttl, double grace, double keep)
{
	VRT_l_beresp_ttl(ctx, ttl);
	/* To Varnish it would be as long as the response is old, and those who have waited longer would find it. */
	if (ttl <= 0.)
		ctx->bo->fetch_objcore->ttl = 0.f;
	VRT_l_beresp_grace(ctx, grace);
	VRT_l_beresp_keep(ctx, keep);
}

/*
 * Kept to be validated on each use, or to be served stale within grace, and never found fresh: a TTL that is too short for any clock. Varnish
 * does not look at objects without one. Varnish counts grace and keep from the moment at which the TTL ends, which lies as far back as the
 * response is old.
 */
#define GS_STALE_AT_ONCE 1e-9f

void
gs_keep_to_validate(VRT_CTX, double grace, double keep)
{
	struct objcore *oc = ctx->bo->fetch_objcore;
	double age = ctx->now - oc->t_origin > 1e-3 ? ctx->now - oc->t_origin : 1e-3;

	VRT_l_beresp_grace(ctx, grace > 0. ? age + grace : 0.);
	VRT_l_beresp_keep(ctx, grace > 0. ? keep : age + keep);
	oc->ttl = GS_STALE_AT_ONCE;
	oc->t_origin = ctx->now - age;
}

int
gs_is_kept_to_validate(VRT_CTX)
{
	const struct objcore *oc = ctx->bo->fetch_objcore;

	return (oc->ttl == GS_STALE_AT_ONCE && (oc->grace > 0.f || oc->keep > 0.f));
}

void gs_set_uncacheable(VRT_CTX) { VRT_l_beresp_uncacheable(ctx, 1); }
/* Nobody is shown the answer before it is whole. */
void gs_do_not_stream(VRT_CTX) { VRT_l_beresp_do_stream(ctx, 0); }

/* Longer than this no stale object is served to this request. A negative number: as long as it is kept. */
void gs_set_grace(VRT_CTX, double grace) { ctx->req->d_grace = grace; }

/* The stale object that this fetch would replace, if there is one, and for how many seconds it has been stale. */
struct objcore *
gs_stale(VRT_CTX, double *stale_for)
{
	struct objcore *oc = ctx->bo->stale_oc;

	if (oc == NULL || (oc->flags & (OC_F_DYING | OC_F_FAILED | OC_F_HFM | OC_F_PRIVATE)) || EXP_WHEN(oc) <= ctx->now)
		return (NULL);
	*stale_for = ctx->now - (oc->t_origin + oc->ttl);
	return (oc);
}

/* Does the fetch replace a stale object, and has the origin said that it is still the same? */
int gs_replaces_stale(VRT_CTX) { return (ctx->bo->stale_oc != NULL); }
int gs_was_304(VRT_CTX) { return (VRT_r_beresp_was_304(ctx) != 0); }
/* The object whose headers a 304 was merged with; NULL where the response is no 304. */
struct objcore *gs_validated(VRT_CTX) { return (gs_was_304(ctx) ? ctx->bo->stale_oc : NULL); }

/* May others get what is delivered? The response to a failed fetch is an object, too, which no lookup finds. */
int
gs_is_stored(VRT_CTX)
{
	const struct objcore *oc = ctx->req->objcore;

	return (oc != NULL && (oc->flags & (OC_F_HFM | OC_F_HFP | OC_F_PRIVATE)) == 0 &&
	    (oc->ttl > 0.f || oc->grace > 0.f || oc->keep > 0.f));
}

/* The request does not wait for another one that fetches the same. In vcl_hash. */
void gs_do_not_wait(VRT_CTX) { ctx->req->hash_ignore_busy = 1; }

/* Seconds that the object which is delivered stays fresh; less than 0 where it is stale. */
double
gs_fresh_for(VRT_CTX)
{
	const struct objcore *oc = ctx->req->objcore;

	return (oc == NULL ? 0. : oc->t_origin + oc->ttl - ctx->now);
}

void gs_set_resp_status(VRT_CTX, unsigned status) { VRT_l_resp_status(ctx, status); }

/* lookup.c */
void gs_let_go(VRT_CTX);

/*
 * The fetch has failed: its stale object is to be served instead, so its time of keep becomes grace. With hold, it passes
 * for a fresh one for so many seconds, too: whoever waits for this fetch gets it, and the origin has a rest. When it goes
 * for good stays as it is, but for objects that may be served for `most` seconds after they were fresh: these go then. Minus zero in keep says that it is stale all the same; to Varnish it is zero.
 *
 * Varnish would drop the stale object at the end of the fetch, so the fetch must let go of it; and then another try must
 * not be a conditional one. 0 where the object has ended meanwhile. The caller keeps others from ending it.
 */
int
gs_rescue(VRT_CTX, double hold, double most)
{
	struct busyobj *bo = ctx->bo;
	struct objcore *oc = bo->stale_oc;
	double end = EXP_WHEN(oc), last = oc->t_origin + oc->ttl + most;

	if (last < end)
		end = last;

	if (oc->ttl <= 0.f || end <= ctx->now)
		return (0);
	if (hold > 0)
		oc->ttl = (float)((ctx->now + hold < end ? ctx->now + hold : end) - oc->t_origin);
	oc->grace = (float)(end - (oc->t_origin + oc->ttl));
	if (oc->grace < 0)
		oc->grace = 0;
	oc->keep = -0.0f;
	gs_let_go(ctx);
	return (1);
}

/* What the cache did for the request that is delivered: 0 pass, 1 miss, 2 hit, 3 stale hit. */
int
gs_cache_status(VRT_CTX)
{
	const struct req *req = ctx->req;
	const struct objcore *oc = req->objcore;

	if (oc == NULL || (oc->flags & OC_F_PRIVATE))
		return (0);
	if (!req->is_hit)
		return (1);
	return (EXP_Ttl(NULL, oc) < req->t_req || signbit(oc->keep) ? 3 : 2);
}

/*--------------------------------------------------------------------
 * Native backends
 */

struct gs_backend {
	const char	*name;
	const void	*sockaddr;
	unsigned	socklen;
	const char	*path;		/* with TLS: the front's unix socket, and what to tell it; or NULL */
	struct gs_text	preamble;
	double		connect, first_byte, between_bytes;
};

VCL_BACKEND
gs_backend_new(VRT_CTX, const struct gs_backend *from, struct vsmw_cluster *cluster)
{
	struct vrt_backend be;
	struct vrt_endpoint ep;
	const struct suckaddr *sua = NULL;
	struct vrt_blob preamble;
	VCL_BACKEND d;

	memset(&be, 0, sizeof be);
	memset(&ep, 0, sizeof ep);
	GS_BLOB_INIT(&preamble);
	be.magic = VRT_BACKEND_MAGIC;
	be.endpoint = &ep;
	be.vcl_name = from->name;
	be.connect_timeout = from->connect;
	be.first_byte_timeout = from->first_byte;
	be.between_bytes_timeout = from->between_bytes;
	GS_NO_WAIT_TIMEOUT(&be);
	ep.magic = VRT_ENDPOINT_MAGIC;
	if (from->path != NULL) {
		preamble.blob = from->preamble.p;
		preamble.len = from->preamble.n;
		ep.uds_path = from->path;
		ep.preamble = &preamble;
	} else {
		sua = VSA_Malloc(from->sockaddr, from->socklen);
		if (sua == NULL)
			return (NULL);
		if (VSA_Get_Proto(sua) == AF_INET6)
			ep.ipv6 = sua;
		else
			ep.ipv4 = sua;
	}
	d = GS_NEW_BACKEND(ctx, cluster, &be);
	free((void *)(uintptr_t)sua);
	return (d);
}

/* Drops our reference: requests that hold theirs finish, then Varnish retires it. VRT_delete_backend() would give
 * 503 to those that have it and are not yet connected. */
void gs_release(VCL_BACKEND d) { VRT_Assign_Backend(&d, NULL); }

/*
 * The counters of many backends in one piece of shared memory; each alone would take a file and a mapping. Varnish
 * asserts that they fit.
 */
struct vsmw_cluster *
gs_cluster_new(VRT_CTX, size_t backends)
{
	return (VRT_VSM_Cluster_New(ctx, backends * (VRT_backend_vsm_need(ctx) + 16)));
}

void
gs_cluster_free(struct vsmw_cluster *c)
{
	struct vrt_ctx ctx[1];

	INIT_OBJ(ctx, VRT_CTX_MAGIC);
	VRT_VSM_Cluster_Destroy(ctx, &c);
}

/*--------------------------------------------------------------------
 * A target: one group of one rule, as a director. It carries the decision from the client's side to the fetch.
 */

static VCL_BOOL
gs_healthy(VRT_CTX, VCL_BACKEND d, VCL_TIME *changed)
{
	(void)ctx;
	(void)d;
	if (changed != NULL)
		*changed = 0;
	return (1);
}

/* The front, where only it can fetch as the rule says: it picks the endpoint, and tries others; or NULL. *kept becomes 1 where the front has the
 * response already: then no endpoint may be asked. */
extern VCL_BACKEND ghost_target_front(const void *target, struct http *unedited, int *kept);
/* One of the group's backends, not the one at *at if there is another; *at becomes its position. */
extern VCL_BACKEND ghost_target_pick(const void *target, size_t *at);
/* The last hand on the request after all VCL, and on the answer before any. */
extern void ghost_leaving(const void *target, struct http *bereq, struct http *unedited);
extern void ghost_arrived(const void *target, struct http *beresp, const char *backend, double seconds);
extern void ghost_target_free(void *target);
/* A fetch has brought an answer, or none, after so many seconds. */
extern void ghost_fetched(const void *target, double seconds, int answered);

/* What the front says of a backend that it has not reached, or not verified (front/src/backend/serve.rs). */
extern int ghost_is_fronts(struct http *beresp);

static int
gs_not_verified(const struct busyobj *bo)
{
	return (bo->beresp->status == 502 && ghost_is_fronts(bo->beresp));
}

/* The front took the request, and told no backend anything of it. */
static void
gs_not_reached(VRT_CTX, VCL_BACKEND be)
{
	struct busyobj *bo = ctx->bo;

	VSLb(bo->vsl, SLT_FetchError, "%s", bo->beresp->hd[HTTP_HDR_REASON].b == NULL ?
	    "Backend TLS" : bo->beresp->hd[HTTP_HDR_REASON].b);
	bo->htc->doclose = SC_REM_CLOSE;
	be->vdir->methods->finish(ctx, be);
	HTTP_Setup(bo->beresp, bo->ws, bo->vsl, SLT_BerespMethod);
}

/* Reads the next head of the connection, as V1F_FetchRespHdr() reads the first: that one does not take what came with the head before. */
static int
gs_next_head(struct busyobj *bo)
{
	struct http_conn *htc = bo->htc;
	struct http *hp = bo->beresp;
	size_t n = htc->pipeline_b == NULL ? 0 : (size_t)(htc->pipeline_e - htc->pipeline_b);
	unsigned status;

	if (WS_ReserveAll(bo->ws) < n + 1) {
		WS_Release(bo->ws, 0);
		return (-1);
	}
	htc->ws = bo->ws;
	htc->rxbuf_b = WS_Reservation(bo->ws);
	htc->rxbuf_e = htc->rxbuf_b + n;
	if (n > 0)
		memmove(htc->rxbuf_b, htc->pipeline_b, n);
	*htc->rxbuf_e = '\0';
	htc->pipeline_b = htc->pipeline_e = NULL;
	if (HTC_RxStuff(htc, HTTP1_Complete, NULL, NULL, VTIM_real() + htc->first_byte_timeout, NAN,
	    htc->between_bytes_timeout, (int)cache_param->http_resp_size) != HTC_S_COMPLETE)
		return (-1);
	if (HTTP1_DissectResponse(htc, hp, bo->bereq) != 0)
		return (-1);
	htc->doclose = http_DoConnection(hp, SC_RESP_CLOSE);
	status = http_GetStatus(hp);
	if (status < 200)
		return (0);
	if (strcmp(http_GetMethod(bo->bereq), "HEAD") == 0 || status == 304)
		htc->body_status = BS_NONE;
	else if (status == 204)
		htc->body_status = htc->content_length > 0 || http_GetHdr(hp, H_Transfer_Encoding, NULL) ? BS_ERROR : BS_NONE;
	if (htc->body_status != BS_NONE && htc->body_status != BS_ERROR)
		return (V1F_Setup_Fetch(bo->vfc, htc) ? -1 : 0);
	return (0);
}

/* As many informational answers of one request are read as the front reads. */
#define GS_MOST_INFORMATIONAL 16

/*
 * The head of the final answer. Varnish takes an informational one (103 Early Hints) for the answer, and then fails. They are not stored.
 * The front hears of hints, and knows whether the client that asked still waits. 101 is for tunnels alone.
 */
extern void ghost_hinted(struct http *unedited, struct http *hint);

static int
gs_heads(VRT_CTX, VCL_BACKEND be)
{
	struct busyobj *bo = ctx->bo;
	int i = be->vdir->methods->gethdrs(ctx, be);

	for (int n = 0; i == 0 && bo->beresp->status < 200 && bo->beresp->status != 101; n++) {
		if (bo->beresp->status == 103)
			ghost_hinted(bo->bereq0, bo->beresp);
		HTTP_Setup(bo->beresp, bo->ws, bo->vsl, SLT_BerespMethod);
		if (n < GS_MOST_INFORMATIONAL)
			i = gs_next_head(bo);
		else
			i = -1;
		if (i != 0) {
			VSLb(bo->vsl, SLT_FetchError, "No final answer after %d informational ones", n + 1);
			bo->htc->doclose = SC_RX_BAD;
			be->vdir->methods->finish(ctx, be);
			return (-1);
		}
	}
	return (i);
}

static int
gs_front_try(VRT_CTX, VCL_BACKEND be)
{
	int i;

	VRT_Assign_Backend(&ctx->bo->director_resp, be);
	i = gs_heads(ctx, be);
	if (i != 0 || !gs_not_verified(ctx->bo))
		return (i);
	gs_not_reached(ctx, be);
	return (-1);
}

/*
 * A backend that cannot be reached is tried once more on another of the group. Where not a byte was sent, nothing
 * was asked of it: so this holds for every method.
 */
static int
gs_target_try(VRT_CTX, VCL_BACKEND d)
{
	struct busyobj *bo = ctx->bo;
	size_t at = SIZE_MAX, before;
	uint64_t sent;
	VCL_BACKEND be;
	int i = -1;

	for (int tries = 0; tries < 2; tries++) {
		before = at;
		be = ghost_target_pick(d->priv, &at);
		if (be == NULL || at == before)
			return (-1);
		VRT_Assign_Backend(&bo->director_resp, be);
		sent = bo->acct.bereq_hdrbytes;
		i = gs_heads(ctx, be);
		if (i == 0 && gs_not_verified(bo)) {
			gs_not_reached(ctx, be);
			if (bo->no_retry != NULL)
				return (-1);
			i = -1;
			continue;
		}
		if (i == 0)
			return (0);
		if (bo->acct.bereq_hdrbytes != sent || bo->htc != NULL || bo->no_retry != NULL)
			return (i);
	}
	return (i);
}

/*--------------------------------------------------------------------
 * An answer that is to be kept may take so much of its storage and no more. One that does not say how long it is shows it only as it
 * comes: then the fetch ends, and Varnish drops the object.
 */

extern uint64_t ghost_most_bytes(const void *target, const char *storage);
extern void ghost_outgrown(const uint8_t *digest);

struct gs_bound {
	struct busyobj	*bo;
	const void	*target;
	uint64_t	most;		/* 0: not yet known */
};

static enum vfp_status
gs_bound_pull(struct vfp_ctx *vc, struct vfp_entry *ve, void *to, ssize_t *room)
{
	struct gs_bound *bound = ve->priv1;
	struct busyobj *bo = bound->bo;
	struct objcore *oc = bo->fetch_objcore;
	enum vfp_status status = VFP_Suck(vc, to, room);

	if (bo->uncacheable || status == VFP_ERROR || *room <= 0)
		return (status);
	if (bound->most == 0)
		bound->most = ghost_most_bytes(bound->target, VRT_STEVEDORE_string(oc->stobj->stevedore));
	/* What comes may be packed, and what is stored may not. */
	if (ve->bytes_out + (uint64_t)*room <= bound->most && oc->boc->GS_SO_FAR <= bound->most)
		return (status);
	ghost_outgrown(bo->digest);
	return (VFP_Error(vc, "ghost: larger than the %ju bytes that may be kept: see maxObjectSize of VarnishCachePolicy",
	    (uintmax_t)bound->most));
}

static const struct vfp gs_bound_vfp[1] = {{ .name = "ghost-bound", .pull = gs_bound_pull }};

/* Right above what reads from the backend; 0 where there is no body to bound. */
static int
gs_bound(VRT_CTX, VCL_BACKEND d)
{
	struct busyobj *bo = ctx->bo;
	struct gs_bound *bound;
	struct vfp_entry *vfe;

	if (bo->htc == NULL || bo->htc->body_status == BS_NONE || bo->htc->body_status == BS_ERROR || bo->uncacheable)
		return (0);
	bound = WS_Alloc(bo->ws, sizeof *bound);
	vfe = bound == NULL ? NULL : VFP_Push(bo->vfc, gs_bound_vfp);
	if (vfe == NULL)
		return (-1);
	bound->bo = bo;
	bound->target = d->priv;
	bound->most = 0;
	vfe->priv1 = bound;
	return (0);
}

static int
gs_target_gethdrs(VRT_CTX, VCL_BACKEND d)
{
	struct busyobj *bo = ctx->bo;
	vtim_mono begun = VTIM_mono();
	vtim_dur took;
	VCL_BACKEND front;
	int i, kept = 1;

	ghost_leaving(d->priv, ctx->bo->bereq, ctx->bo->bereq0);
	front = ghost_target_front(d->priv, ctx->bo->bereq0, &kept);
	if (kept && front == NULL)
		return (-1);
	i = front != NULL ? gs_front_try(ctx, front) : gs_target_try(ctx, d);
	took = VTIM_mono() - begun;
	if (!kept)
		ghost_fetched(d->priv, took, i == 0);
	if (i == 0 && gs_bound(ctx, d) != 0) {
		VSLb(bo->vsl, SLT_FetchError, "workspace_backend overflow");
		bo->htc->doclose = SC_OVERLOAD;
		bo->director_resp->vdir->methods->finish(ctx, bo->director_resp);
		return (-1);
	}
	if (i == 0)
		ghost_arrived(d->priv, ctx->bo->beresp, ctx->bo->director_resp->vcl_name, took);
	return (i);
}

/*--------------------------------------------------------------------
 * WebSockets. The origin's answer is read whole before a byte of what the client sends behind its request goes there.
 */

extern int ghost_is_websocket(struct http *req);
extern int ghost_tunnel_begins(uint64_t most);
extern void ghost_tunnel_ends(void);
/* 0: it cannot be handed on; 1: a tunnel; 2: an answer with this framing. */
extern int ghost_tunnel_answer(const void *target, struct http *beresp, void **framing);
extern void ghost_framing_free(void *framing);

/* A client that has its answer is read from for so long, so that the answer is not lost by a reset. */
#define GS_PARTING 1.0

static stream_close_t
gs_say(VRT_CTX, unsigned status, const char *reason, vtim_dur parting)
{
	char line[128];
	int n = snprintf(line, sizeof line, "HTTP/1.1 %u %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	    status, reason);

	if (gs_send(ctx->req->sp->fd, line, (size_t)n, cache_param->idle_send_timeout) != 0)
		return (SC_REM_CLOSE);
	ctx->req->acct.resp_hdrbytes += (uint64_t)n;
	gs_part(ctx->req->sp->fd, parting);
	return (SC_TX_ERROR);
}

static int
gs_send_head(VRT_CTX, const struct http *hp)
{
	struct vsb *vsb = VSB_new_auto();
	txt reason = hp->hd[HTTP_HDR_REASON];
	int i = -1;

	if (vsb == NULL)
		return (-1);
	VSB_printf(vsb, "HTTP/1.1 %03u ", http_GetStatus(hp));
	if (reason.b != NULL)
		VSB_bcat(vsb, reason.b, Tlen(reason));
	VSB_cat(vsb, "\r\n");
	for (unsigned u = HTTP_HDR_FIRST; u < hp->nhd; u++) {
		if (hp->hd[u].b == NULL)
			continue;
		VSB_bcat(vsb, hp->hd[u].b, Tlen(hp->hd[u]));
		VSB_cat(vsb, "\r\n");
	}
	VSB_cat(vsb, "\r\n");
	if (VSB_finish(vsb) == 0 && gs_send(ctx->req->sp->fd, VSB_data(vsb), (size_t)VSB_len(vsb),
	    cache_param->idle_send_timeout) == 0) {
		ctx->req->acct.resp_hdrbytes += (uint64_t)VSB_len(vsb);
		i = 0;
	}
	VSB_destroy(&vsb);
	return (i);
}

static struct gs_text
gs_behind(const struct http_conn *htc)
{
	struct gs_text t = { NULL, 0 };

	if (htc != NULL && htc->pipeline_b != NULL) {
		t.p = htc->pipeline_b;
		t.n = (size_t)(htc->pipeline_e - htc->pipeline_b);
	}
	return (t);
}

static stream_close_t
gs_answered(VRT_CTX, VCL_BACKEND d)
{
	struct busyobj *bo = ctx->bo;
	struct req *req = ctx->req;
	int client = req->sp->fd, origin = *bo->htc->rfd;
	void *framing = NULL;
	struct gs_text behind = gs_behind(bo->htc);
	stream_close_t closed = SC_TX_PIPE;
	uint64_t down = 0;

	switch (ghost_tunnel_answer(d->priv, bo->beresp, &framing)) {
	case 1:
		if (gs_send_head(ctx, bo->beresp) != 0 ||
		    gs_send(client, behind.p, behind.n, cache_param->idle_send_timeout) != 0)
			break;
		down = behind.n;
		gs_relay(client, origin, gs_behind(req->htc), &down);
		break;
	case 2:
		if (gs_send_head(ctx, bo->beresp) != 0)
			break;
		gs_hand_on(client, origin, behind, framing, bo->htc->between_bytes_timeout, &down);
		gs_part(client, GS_PARTING);
		break;
	default:
		VSLb(bo->vsl, SLT_FetchError, "The answer to a WebSocket request cannot be handed on");
		closed = gs_say(ctx, 502, "Bad Gateway", GS_PARTING);
	}
	ghost_framing_free(framing);
	req->acct.resp_bodybytes += down;
	return (closed);
}

static stream_close_t
gs_tunnel(VRT_CTX, VCL_BACKEND d)
{
	struct busyobj *bo = ctx->bo;
	vtim_mono begun = VTIM_mono();
	stream_close_t closed;
	VCL_BACKEND be;
	int i;

	if (!ghost_tunnel_begins(gs_most_tunnels())) {
		VSLb(bo->vsl, SLT_FetchError, "Too many WebSockets: half of thread_pools x thread_pool_max");
		/* Threads are scarce now: this one is not kept for the client's sake. */
		return (gs_say(ctx, 503, "Service Unavailable", 0.));
	}
	/* As Varnish does before it fetches. */
	HTTP_Setup(bo->beresp, bo->ws, bo->vsl, SLT_BerespMethod);
	VFP_Setup(bo->vfc, ctx->req->wrk);
	bo->vfc->resp = bo->beresp;
	bo->vfc->req = bo->bereq;
	i = gs_target_try(ctx, d);
	ghost_fetched(d->priv, VTIM_mono() - begun, i == 0);
	VSLb_ts_req(ctx->req, "Pipe", W_TIM_real(ctx->req->wrk));
	if (i == 0) {
		closed = gs_answered(ctx, d);
		be = bo->director_resp;
		bo->htc->doclose = SC_TX_PIPE;
		be->vdir->methods->finish(ctx, be);
	} else
		closed = gs_say(ctx, 503, "Service Unavailable", GS_PARTING);
	VSLb_ts_req(ctx->req, "PipeSess", W_TIM_real(ctx->req->wrk));
	ghost_tunnel_ends();
	return (closed);
}

static stream_close_t
gs_target_pipe(VRT_CTX, VCL_BACKEND d)
{
	size_t at = SIZE_MAX, before;
	stream_close_t closed;
	vtim_real last;
	VCL_BACKEND be;

	ghost_leaving(d->priv, ctx->bo->bereq, NULL);
	if (ghost_is_websocket(ctx->http_req))
		return (gs_tunnel(ctx, d));
	/* User VCL pipes by itself: this is Varnish's own pipe, from the first byte on. */
	for (int tries = 0; tries < 2; tries++) {
		before = at;
		be = ghost_target_pick(d->priv, &at);
		if (be == NULL || at == before)
			break;
		last = ctx->req->t_prev;
		closed = be->vdir->methods->http1pipe(ctx, be);
		/* Once it has connected, Varnish notes the time. */
		if (closed != SC_TX_ERROR || ctx->req->t_prev != last)
			return (closed);
	}
	/* Varnish would close without a word. */
	return (gs_say(ctx, 503, "Service Unavailable", GS_PARTING));
}

static void gs_target_destroy(VCL_BACKEND d) { ghost_target_free(d->priv); }

static const struct vdi_methods gs_target_methods[1] = {{
	.magic = VDI_METHODS_MAGIC, .type = "ghost", .healthy = gs_healthy, .gethdrs = gs_target_gethdrs,
	.http1pipe = gs_target_pipe, .destroy = gs_target_destroy,
}};

VCL_BACKEND
gs_target_new(VRT_CTX, const char *name, void *target)
{
	return (VRT_AddDirector(ctx, gs_target_methods, target, "%s", name));
}

/*--------------------------------------------------------------------
 * An answer of our own, as a backend: user VCL shapes it like any other.
 */

struct gs_answer {
	unsigned	status;
	const char	*header;	/* "Name: value" beside the usual ones, or NULL; ends in a zero byte */
	struct gs_text	body;		/* given back by ghost_body_free */
};

extern void ghost_body_free(void *p, size_t n);

/* A body may be too large for the workspace: it goes with the task. */
static void
gs_body_fini(VRT_CTX, void *p)
{
	struct gs_text *body = p;

	(void)ctx;
	ghost_body_free((void *)(uintptr_t)body->p, body->n);
	body->p = NULL;
	body->n = 0;
}

static const struct vmod_priv_methods gs_body_methods[1] = {{
	.magic = VMOD_PRIV_METHODS_MAGIC, .type = "ghost body", .fini = gs_body_fini,
}};

static int
gs_keep_body(VRT_CTX, struct gs_text body)
{
	static const char id[1];
	struct vmod_priv *p = VRT_priv_task(ctx, id);
	struct gs_text *kept;

	if (p != NULL && p->priv != NULL) {
		/* Of an earlier try. */
		gs_body_fini(ctx, p->priv);
		kept = p->priv;
	} else
		kept = p == NULL ? NULL : WS_Alloc(ctx->ws, sizeof *kept);
	if (kept == NULL) {
		ghost_body_free((void *)(uintptr_t)body.p, body.n);
		return (-1);
	}
	*kept = body;
	p->priv = kept;
	p->methods = gs_body_methods;
	return (0);
}

extern int ghost_answer(VRT_CTX, const void *priv, struct gs_answer *);

static enum vfp_status
gs_body_pull(struct vfp_ctx *vc, struct vfp_entry *ve, void *to, ssize_t *room)
{
	struct gs_text *left = ve->priv1;
	size_t n = *room > 0 ? (size_t)*room : 0;

	(void)vc;
	if (n > left->n)
		n = left->n;
	memcpy(to, left->p, n);
	left->p += n;
	left->n -= n;
	*room = (ssize_t)n;
	return (left->n == 0 ? VFP_END : VFP_OK);
}

static const struct vfp gs_body_vfp[1] = {{ .name = "ghost", .pull = gs_body_pull }};

static int
gs_answer_gethdrs(VRT_CTX, VCL_BACKEND d)
{
	struct busyobj *bo = ctx->bo;
	struct gs_answer a = { 0 };
	struct gs_text *body;
	struct vfp_entry *vfe;

	if (ghost_answer(ctx, d->priv, &a) != 0 || gs_keep_body(ctx, a.body) != 0)
		return (-1);
	http_PutResponse(bo->beresp, "HTTP/1.1", (uint16_t)a.status, NULL);
	if (a.header != NULL)
		http_PrintfHeader(bo->beresp, "%s", a.header);
	/* Clients that see the type without the body try to parse nothing. */
	if (a.body.n > 0 && strcmp(bo->bereq->hd[HTTP_HDR_METHOD].b, "HEAD") != 0)
		http_PrintfHeader(bo->beresp, "Content-Type: application/json");
	http_PrintfHeader(bo->beresp, "Content-Length: %zu", a.body.n);
	http_TimeHeader(bo->beresp, "Date: ", W_TIM_real(bo->wrk));
	bo->htc = WS_Alloc(bo->ws, sizeof *bo->htc);
	body = WS_Alloc(bo->ws, sizeof *body);
	if (bo->htc == NULL || body == NULL)
		return (-1);
	INIT_OBJ(bo->htc, HTTP_CONN_MAGIC);
	bo->htc->doclose = SC_REM_CLOSE;
	bo->htc->content_length = (ssize_t)a.body.n;
	/* Where there is no body, Varnish must not be told to fetch one: it would assert that nobody delivers it. */
	bo->htc->body_status = BS_NONE;
	if (a.body.n > 0 && strcmp(http_GetMethod(bo->bereq), "HEAD")) {
		bo->htc->body_status = BS_LENGTH;
		*body = a.body;
		vfe = VFP_Push(bo->vfc, gs_body_vfp);
		if (vfe == NULL)
			return (-1);
		vfe->priv1 = body;
	}
	return (0);
}

static void gs_answer_finish(VRT_CTX, VCL_BACKEND d) { (void)d; ctx->bo->htc = NULL; }
extern void ghost_answer_free(void *priv);
static void gs_answer_destroy(VCL_BACKEND d) { ghost_answer_free(d->priv); }

static const struct vdi_methods gs_answer_methods[1] = {{
	.magic = VDI_METHODS_MAGIC, .type = "ghost-answer", .healthy = gs_healthy, .gethdrs = gs_answer_gethdrs,
	.finish = gs_answer_finish, .destroy = gs_answer_destroy,
}};

VCL_BACKEND
gs_answer_new(VRT_CTX, const char *name, void *priv)
{
	return (VRT_AddDirector(ctx, gs_answer_methods, priv, "%s", name));
}

/* Rust's part of a director, if it is one of ours: kind 1 target, 2 answer, 0 of others. */
int
gs_ours(VCL_BACKEND d, void **priv)
{
	if (d == NULL || d->vdir == NULL)
		return (0);
	*priv = d->priv;
	if (d->vdir->methods == gs_target_methods)
		return (1);
	return (d->vdir->methods == gs_answer_methods ? 2 : 0);
}
