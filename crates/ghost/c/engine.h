/*
 * The engines that ghost is compiled for: Varnish Cache 7.1 and 7.7, and Vinyl Cache 9. What their headers say differently is said
 * here, and the rest of the shim has one name for it.
 */
#ifndef GHOST_ENGINE_H
#define GHOST_ENGINE_H

#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

/* Vinyl Cache has renamed the headers of its own daemon, and later versions have renamed them again. */
#if __has_include("cache/cache_int.h")
#  include "cache/cache_int.h"
#elif __has_include("cache/cache_vinyld.h")
#  include "cache/cache_vinyld.h"
#else
#  include "cache/cache_varnishd.h"
#endif
#include "cache/cache_director.h"
#include "cache/cache_filter.h"
#include "vcl.h"
#include "vsha256.h"

/* How many bytes of a body have been stored. */
#if VRT_MAJOR_VERSION >= 17
#  define GS_SO_FAR fetched_so_far
#else
#  define GS_SO_FAR len_so_far
#endif

#ifndef NO_VXID
#  define NO_VXID 0
#endif

/* The magic number of a blob, where it has one. */
#ifdef VRT_BLOB_MAGIC
#  define GS_BLOB_INIT(blob) INIT_OBJ(blob, VRT_BLOB_MAGIC)
#else
#  define GS_BLOB_INIT(blob) memset(blob, 0, sizeof *(blob))
#endif

/* Limits of a backend that are not set: a negative number from VRT 19 on, and there is such a member from VRT 20 on. */
#if VRT_MAJOR_VERSION >= 20
#  define GS_NO_WAIT_TIMEOUT(be) ((be)->backend_wait_timeout = -1)
#else
#  define GS_NO_WAIT_TIMEOUT(be) ((void)(be))
#endif

/* From VRT 17 on a backend may be reached through another one. Ours are not. */
#if VRT_MAJOR_VERSION >= 17
#  define GS_NEW_BACKEND(ctx, cluster, be) VRT_new_backend_clustered(ctx, cluster, be, NULL)
#else
#  define GS_NEW_BACKEND(ctx, cluster, be) VRT_new_backend_clustered(ctx, cluster, be)
#endif

#endif
