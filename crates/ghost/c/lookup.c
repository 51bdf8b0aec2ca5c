/*
 * How a request whose client says what it takes (Cache-Control of requests) looks for its object: Varnish shows each candidate while it
 * looks. No decision is made here.
 *
 * Varnish calls the facility undocumented. It is used for such requests alone, and private.h holds its types against those of the engine.
 */

#include "config.h"

#include "engine.h"
#include "private.h"

/* 1 where a fresh object of this age, which stays fresh for so long, may be used. */
extern int ghost_takes_fresh(void *asked, double age, double fresh_for);
/* For how many seconds after it was fresh the object may be used; less than 0: as it would be without the client's word. */
extern double ghost_takes_stale(void *asked, struct worker *, struct objcore *, double age, double stale_for, double grace);
/* The candidates are over. */
extern void ghost_has_looked(void *asked);

struct gs_lookup {
	struct vcf	vcf;
	struct objcore	*refused;	/* fresh, and not taken: it is to be validated */
	vtim_dur	ttl, grace;	/* of the request */
};

/* Less than the age of any object. */
#define GS_NO_TTL 1e-9

static const struct vcf_return *
gs_look(struct req *req, struct objcore **oc, struct objcore **expired, int state)
{
	struct gs_lookup *look = (void *)req->vcf;
	struct objcore *o;
	double fresh_for, stale_for, grace;

	if (state == 0) {
		/* After a wait it begins again. */
		req->d_ttl = look->ttl;
		req->d_grace = look->grace;
		o = *oc;
		fresh_for = o->t_origin + o->ttl - req->t_req;
		/* Minus zero in keep: the origin has failed, and the object takes its place (gs_rescue). */
		if ((o->flags & (OC_F_HFM | OC_F_HFP)) || fresh_for <= 0. || (o->keep == 0.f && 1.f / o->keep < 0.f) ||
		    ghost_takes_fresh(look->vcf.priv, req->t_req - o->t_origin, fresh_for))
			return (VCF_DEFAULT);
		if (look->refused == NULL || look->refused->t_origin < o->t_origin)
			look->refused = o;
		return (VCF_CONTINUE);
	}
	if (state == 1) {
		if (*oc == NULL && look->refused != NULL) {
			*expired = look->refused;
			req->d_ttl = GS_NO_TTL;
			req->d_grace = 0.;
		} else if (*oc == NULL && *expired != NULL && !((*expired)->flags & OC_F_HFM)) {
			o = *expired;
			stale_for = req->t_req - (o->t_origin + o->ttl);
			grace = req->d_grace >= 0. && req->d_grace < o->grace ? req->d_grace : o->grace;
			grace = ghost_takes_stale(look->vcf.priv, req->wrk, o, req->t_req - o->t_origin, stale_for, grace);
			/* More than the object's own grace Varnish does not give. */
			if (grace >= 0. && stale_for <= grace)
				*oc = o;
			else if (grace >= 0.)
				req->d_grace = grace;
		}
		look->refused = NULL;
		ghost_has_looked(look->vcf.priv);
	}
	return (VCF_DEFAULT);
}

/* In vcl_hash. Whoever does this must call gs_look_no_more() before the request is over: one that passes looks for nothing. */
void
gs_look_with(VRT_CTX, void *asked)
{
	struct gs_lookup *look = WS_Alloc(ctx->req->ws, sizeof *look);

	if (look == NULL) {
		VRT_fail(ctx, "ghost: no workspace for the client's Cache-Control");
		return;
	}
	memset(look, 0, sizeof *look);
	INIT_OBJ(&look->vcf, VCF_MAGIC);
	look->vcf.func = gs_look;
	look->vcf.priv = asked;
	look->ttl = ctx->req->d_ttl;
	look->grace = ctx->req->d_grace;
	ctx->req->vcf = &look->vcf;
}

void
gs_look_no_more(struct req *req)
{
	if (req->vcf != NULL && req->vcf->func == gs_look)
		req->vcf = NULL;
}

/* For a hit: has the request waited for another one that fetched the same? Varnish notes the time then. */
int
gs_has_waited(VRT_CTX)
{
	const struct req *req = ctx->req;

	return (req->restarts == 0 && req->esi_level == 0 && req->t_prev > req->t_req);
}

/* Does the fetch replace an object that is still fresh, since a client has refused it? */
int
gs_refreshes(VRT_CTX)
{
	const struct objcore *oc = ctx->bo->stale_oc;

	return (oc != NULL && oc->t_origin + oc->ttl > ctx->now);
}

/* index.c */
int gs_has_ended(const struct objcore *);

/* The object that the fetch would have replaced stays as it is. Another try must not be a conditional one. */
void
gs_let_go(VRT_CTX)
{
	struct busyobj *bo = ctx->bo;

	if (bo->stale_oc == NULL)
		return;
	gs_deref(bo->wrk, &bo->stale_oc);
	bo->stale_oc = NULL;
	http_Unset(bo->bereq, H_If_None_Match);
	http_Unset(bo->bereq, H_If_Modified_Since);
	http_Unset(bo->bereq0, H_If_None_Match);
	http_Unset(bo->bereq0, H_If_Modified_Since);
}

/* In vcl_backend_fetch: what was invalidated since it was looked for is not validated: its origin is asked for the whole. */
void
gs_let_go_of_ended(VRT_CTX)
{
	if (ctx->bo->stale_oc != NULL && gs_has_ended(ctx->bo->stale_oc))
		gs_let_go(ctx);
}
