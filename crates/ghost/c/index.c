/*
 * What the index of objects and invalidation need of Varnish's own structs. No decision is made here.
 *
 * Varnish says OEV_INSERT when an object has its headers and can be found, and OEV_EXPIRE before it gives up the reference
 * that keeps it alive for its expiry. Whoever forgets an object in OEV_EXPIRE, under the lock by which he finds it, may
 * touch what he finds.
 */

#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include "engine.h"
#include "private.h"
#include "vtim.h"

/*--------------------------------------------------------------------
 * Events
 */

extern void ghost_index_insert(struct worker *, struct objcore *);
extern void ghost_index_remove(struct objcore *);

static void
gs_object_event(struct worker *wrk, void *priv, struct objcore *oc, unsigned event)
{
	(void)priv;
	if (event & OEV_INSERT)
		ghost_index_insert(wrk, oc);
	if (event & OEV_EXPIRE)
		ghost_index_remove(oc);
}

uintptr_t gs_subscribe(void) { return (ObjSubscribeEvents(gs_object_event, NULL, OEV_INSERT | OEV_EXPIRE)); }
void gs_unsubscribe(uintptr_t handle) { ObjUnsubscribeEvents(&handle); }

/*--------------------------------------------------------------------
 * Objects
 */

/* The stored header after this one, "Name: value"; NULL begins, and ends. */
const char *
gs_stored_header(struct worker *wrk, struct objcore *oc, const char *after)
{
	return (HTTP_IterHdrPack(wrk, oc, &after) ? after : NULL);
}

/*
 * False where there was nothing left to end. Varnish finds no object whose ttl is zero or less, whatever its grace: one that goes
 * gets that, one that becomes stale must not. A float knows days to milliseconds only: so a little less than its age.
 */
int
gs_expire(struct objcore *oc, int soft)
{
	vtim_real now = VTIM_real();
	vtim_dur age = now - oc->t_origin;

	if (soft) {
		if (oc->ttl <= age || age <= 0.)
			return (0);
		EXP_Rearm(oc, now, -1e-6 * age, oc->grace, oc->keep);
		return (1);
	}
	if (oc->ttl <= 0. || oc->ttl + oc->grace + oc->keep <= age)
		return (0);
	EXP_Rearm(oc, now, -age - 1., 0., 0.);
	return (1);
}

/*
 * For an object that is just being inserted, which EXP_Rearm() must not touch: no request finds it from now on, and its expiry, which
 * is set up after this, takes it. Requests that found it before see by gs_has_ended() that they must not use it.
 */
void
gs_forget(struct objcore *oc)
{
	float ended = -1.f;

	__atomic_store(&oc->ttl, &ended, __ATOMIC_RELEASE);
	oc->grace = oc->keep = 0.f;
}

/*
 * Was the object ended, by gs_forget() or gs_expire()? A ttl of zero does not say so: Vinyl shows those who waited for a fetch its object
 * whatever its ttl, also one that is not to be kept.
 */
int
gs_has_ended(const struct objcore *oc)
{
	float ttl;

	__atomic_load(&oc->ttl, &ttl, __ATOMIC_ACQUIRE);
	return (ttl < 0.f);
}

/* In vcl_hit. */
struct objcore *gs_hit(VRT_CTX) { return (ctx->req->objcore); }

/*
 * The object that the fetch brings. ghost_fetch_over() is called when the fetch is over, while the object is still there, or when
 * user VCL rolls it back. NULL where there is no workspace for that: the fetch fails then.
 */
extern void ghost_fetch_over(struct objcore *);

static void
gs_fetch_fini(VRT_CTX, void *p)
{
	(void)ctx;
	ghost_fetch_over(p);
}

static const struct vmod_priv_methods gs_fetch_methods[1] = {{
	.magic = VMOD_PRIV_METHODS_MAGIC, .type = "ghost fetch", .fini = gs_fetch_fini,
}};

struct objcore *
gs_fetched_object(VRT_CTX)
{
	static const char id[1];
	struct vmod_priv *p = VRT_priv_task(ctx, id);

	if (p == NULL) {
		VRT_fail(ctx, "ghost: no workspace for the fetch");
		return (NULL);
	}
	p->priv = ctx->bo->fetch_objcore;
	p->methods = gs_fetch_methods;
	return (p->priv);
}

/*
 * The object that is delivered, if it is whole and goes to clients as it is: no part of a page (ESI), and not one that stands for a
 * missing object. `boc` is there until the fetch has ended and all who were shown it meanwhile are done; only the pointer is looked at.
 */
struct objcore *
gs_whole_object(VRT_CTX, uint64_t *length)
{
	struct req *req = ctx->req;
	struct objcore *oc = req->objcore;

	if (oc == NULL || req->esi_level > 0 || __atomic_load_n(&oc->boc, __ATOMIC_ACQUIRE) != NULL)
		return (NULL);
	if (oc->flags & (OC_F_BUSY | OC_F_HFM | OC_F_HFP | OC_F_PRIVATE | OC_F_FAILED | OC_F_DYING))
		return (NULL);
	if (ObjHasAttr(req->wrk, oc, OA_ESIDATA))
		return (NULL);
	*length = ObjGetLen(req->wrk, oc);
	return (oc);
}

/* Room for one more header of so many bytes: a header too many would fail the whole response. */
int
gs_has_room(struct http *hp, size_t bytes)
{
	unsigned room;

	if (hp->nhd >= hp->shd)
		return (0);
	room = WS_ReserveAll(hp->ws);
	WS_Release(hp->ws, 0);
	/* ": ", the byte at the end, and what is left over for others. */
	return (room > bytes + 256);
}

/* An object without content: it says that requests for it do not wait for each other. */
int gs_is_hit_for_miss(const struct objcore *oc) { return ((oc->flags & OC_F_HFM) != 0); }

/*--------------------------------------------------------------------
 * The body of a request to the loopback socket
 */

struct gs_body {
	char	*p;
	size_t	n, room, most;
};

static int
gs_take_body(void *priv, unsigned flush, const void *p, ssize_t n)
{
	struct gs_body *body = priv;
	size_t wanted = body->n + (n > 0 ? (size_t)n : 0);
	char *more;

	(void)flush;
	if (wanted > body->most)
		return (-1);
	if (wanted > body->room) {
		body->room = wanted * 2;
		more = realloc(body->p, body->room);
		if (more == NULL)
			return (-1);
		body->p = more;
	}
	if (n > 0)
		memcpy(body->p + body->n, p, (size_t)n);
	body->n = wanted;
	return (0);
}

/* The whole body, for gs_free(); NULL where there is none, or more than `most`. */
char *
gs_request_body(VRT_CTX, size_t most, size_t *n)
{
	struct gs_body body = { .most = most };
	struct busyobj *bo = ctx->bo;
	ssize_t done = -1;

	if (bo->bereq_body != NULL)
		done = ObjIterate(bo->wrk, bo->bereq_body, &body, gs_take_body, 0);
	else if (bo->req != NULL && bo->req->req_body_status != BS_NONE)
		done = VRB_Iterate(bo->wrk, bo->vsl, bo->req, gs_take_body, &body);
	if (done < 0) {
		free(body.p);
		return (NULL);
	}
	*n = body.n;
	return (body.p);
}

void gs_free(void *p) { free(p); }

double gs_real_time(void) { return (VTIM_real()); }
struct worker *gs_worker(VRT_CTX) { return (ctx->bo != NULL ? ctx->bo->wrk : ctx->req->wrk); }
