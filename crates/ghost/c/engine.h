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

/* Vinyl Cache has renamed the headers of its own daemon. */
#if __has_include("cache/cache_vinyld.h")
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

#endif
