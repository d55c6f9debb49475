/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C ABI of OrbiTE for a NIXL backend plugin (liborbite_nixl.so). C11 and C++20, LP64 only.
 *
 * Rules of every call
 *  - Thread-safe. Any thread may make any call on any handle at any time; a handle that is gone is
 *    ORBITE_NIXL_ERR_STALE_HANDLE.
 *  - Returns ORBITE_NIXL_OK or one of orbite_nixl_status. `error` may be NULL; when it is not, it
 *    is filled on failure and its message names the value at fault and what is allowed. An error
 *    from a call means: nothing was admitted.
 *  - No exception leaves a call. An internal failure is ORBITE_NIXL_ERR_INTERNAL.
 *  - Pointers other than `error` must not be NULL, except where it is said; NULL with 0 bytes is
 *    an empty input. They must have the alignment of their type.
 *  - Outputs are owned by the caller and written only on success, except where "in/out" is said.
 *  - A record's `size`, `abi_major` and `abi_minor` must be set by the caller (ORBITE_NIXL_RECORD
 *    does it), in outputs too. A record of another major version or of a size this library does
 *    not know is ORBITE_NIXL_ERR_ABI_MISMATCH. When that record is `error`, it is left alone.
 *  - Reserved fields must be 0.
 *  - After fork(), every call of the child on a handle of the parent is ORBITE_NIXL_ERR_FORKED and
 *    touches nothing. The child may create engines of its own.
 *  - Blocks: only where it is said, and then never longer than the given time.
 */
#ifndef ORBITE_NIXL_H
#define ORBITE_NIXL_H

#include <stddef.h>
#include <stdint.h>

#if UINTPTR_MAX != UINT64_MAX
#error "orbite/nixl.h needs 64-bit pointers"
#endif

#if defined(__GNUC__)
#define ORBITE_NIXL_API __attribute__((visibility("default")))
#else
#define ORBITE_NIXL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ORBITE_NIXL_ABI_MAJOR 0
#define ORBITE_NIXL_ABI_MINOR 3

/* Handles: generation in the high 32 bits, index in the low ones. 0 is never a handle. */
typedef uint64_t orbite_nixl_engine_t;
typedef uint64_t orbite_nixl_registration_t; /* one registered range */
typedef uint64_t orbite_nixl_peer_t;         /* one remote engine under one epoch, or ourselves */
typedef uint64_t orbite_nixl_range_t;        /* a lease on a peer's (or our own) described range */
typedef uint64_t orbite_nixl_request_t;      /* a prepared transfer and its current execution */
/* Memory that other processes of this host can map. Of the process, not of an engine; a number that
 * is never given twice. 0 is none. */
typedef uint64_t orbite_nixl_shared_t;

/* The numbers of orbite/error_codes.def, which also says what each means. */
typedef enum orbite_nixl_status {
  ORBITE_NIXL_OK = 0,
  ORBITE_NIXL_ERR_INVALID_ARGUMENT = 100,
  ORBITE_NIXL_ERR_INVALID_RANGE = 101,
  ORBITE_NIXL_ERR_LENGTH_MISMATCH = 102,
  ORBITE_NIXL_ERR_STALE_HANDLE = 103,
  ORBITE_NIXL_ERR_UNSUPPORTED = 104,
  ORBITE_NIXL_ERR_NOT_ALLOWED = 105,
  ORBITE_NIXL_ERR_BAD_METADATA = 106,
  ORBITE_NIXL_ERR_INCOMPATIBLE = 107,
  ORBITE_NIXL_ERR_BAD_CONFIG = 108,
  ORBITE_NIXL_ERR_BUFFER_TOO_SMALL = 109,
  ORBITE_NIXL_ERR_ABI_MISMATCH = 110,
  ORBITE_NIXL_ERR_NOT_FOUND = 111,
  ORBITE_NIXL_ERR_BUDGET_EXHAUSTED = 200,
  ORBITE_NIXL_ERR_OUT_OF_MEMORY = 201,
  ORBITE_NIXL_ERR_CANCELED = 300,
  ORBITE_NIXL_ERR_DEADLINE_EXCEEDED = 301,
  ORBITE_NIXL_ERR_SHORT_TRANSFER = 302,
  ORBITE_NIXL_ERR_IO_FAILED = 303,
  ORBITE_NIXL_ERR_ACTIVE = 304,
  ORBITE_NIXL_ERR_NOT_POSTED = 305,
  ORBITE_NIXL_ERR_NOT_REPOSTABLE = 306,
  ORBITE_NIXL_ERR_NOTIFICATION_FAILED = 307,
  ORBITE_NIXL_ERR_REGISTRATION_FENCED = 400,
  ORBITE_NIXL_ERR_REGISTRATION_CHANGED = 401,
  ORBITE_NIXL_ERR_PEER_DISCONNECTED = 500,
  ORBITE_NIXL_ERR_PEER_EPOCH_CHANGED = 501,
  ORBITE_NIXL_ERR_PEER_RETIRED = 502,
  ORBITE_NIXL_ERR_PEER_UNREACHABLE = 503,
  ORBITE_NIXL_ERR_HANDSHAKE_REJECTED = 504,
  ORBITE_NIXL_ERR_PROTOCOL_VIOLATION = 505,
  ORBITE_NIXL_ERR_PEER_SILENT = 506,
  ORBITE_NIXL_ERR_TRANSPORT_UNAVAILABLE = 600,
  ORBITE_NIXL_ERR_ADDRESS_IN_USE = 601,
  ORBITE_NIXL_ERR_ADDRESS_NOT_LOCAL = 602,
  ORBITE_NIXL_ERR_ENGINE_CLOSING = 700,
  ORBITE_NIXL_ERR_FORKED = 701,
  ORBITE_NIXL_ERR_INTERNAL = 702,
  ORBITE_NIXL_ERR_SYSTEM = 703
} orbite_nixl_status_t;

/* The head of a record of the given type.
 *   C:   orbite_nixl_error_t error = {.record = ORBITE_NIXL_RECORD(orbite_nixl_error_t)};
 *   C++: orbite_nixl_error_t error{}; error.record = ORBITE_NIXL_RECORD(orbite_nixl_error_t); */
#define ORBITE_NIXL_RECORD(type) {sizeof(type), ORBITE_NIXL_ABI_MAJOR, ORBITE_NIXL_ABI_MINOR}

typedef struct orbite_nixl_record {
  uint32_t size; /* of the whole record that this stands at the head of */
  uint16_t abi_major;
  uint16_t abi_minor;
} orbite_nixl_record_t;

#define ORBITE_NIXL_MESSAGE_BYTES 400
typedef struct orbite_nixl_error {
  orbite_nixl_record_t record;             /* in */
  int32_t status;                          /* orbite_nixl_status_t */
  int32_t native_errno;                    /* 0 if no system call was at fault */
  char message[ORBITE_NIXL_MESSAGE_BYTES]; /* NUL-terminated, cut at its capacity */
} orbite_nixl_error_t;

/* ---- ABI ---- */

#define ORBITE_NIXL_FEATURE_TCP (1ull << 0)
#define ORBITE_NIXL_FEATURE_LOCAL (1ull << 1)

typedef struct orbite_nixl_abi {
  orbite_nixl_record_t record; /* in */
  uint16_t abi_major;          /* of the library */
  uint16_t abi_minor;
  uint32_t wire_version; /* two engines with different wire versions refuse each other at the
                            handshake */
  uint64_t features;     /* ORBITE_NIXL_FEATURE_* */
  char version[32];      /* of OrbiTE, NUL-terminated */
} orbite_nixl_abi_t;

/* Does not check abi_major of `abi` and `error`: this is the call by which a caller learns of a
 * mismatch. Only the sizes must be ones that this library knows. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_abi_query(orbite_nixl_abi_t* abi,
                                                           orbite_nixl_error_t* error);
/* The text of a status ("invalid memory range"), "unknown error" for a number that is none; never
 * NULL, static storage. */
ORBITE_NIXL_API const char* orbite_nixl_status_text(int32_t status);

/* ---- Engine ---- */

#define ORBITE_NIXL_NAME_BYTES_MAX 256

typedef struct orbite_nixl_engine_options {
  orbite_nixl_record_t record;
  const char* name;   /* how peers see us in their notifications: the NIXL agent's name */
  size_t name_bytes;  /* 1..ORBITE_NIXL_NAME_BYTES_MAX */
  const char* config; /* JSON, or NULL: then the file that ORBITE_CONFIG names, else the defaults */
  size_t config_bytes;
} orbite_nixl_engine_options_t;

/* The phases of a close, in order. Unquiesced: proof of retirement cannot be had for something; it
 * stays in quarantine with its owners and charges. */
typedef enum orbite_nixl_close_phase {
  ORBITE_NIXL_CLOSE_OPEN = 0,            /* not closing */
  ORBITE_NIXL_CLOSE_DRAINING_SERVED = 1, /* what peers do with our memory */
  ORBITE_NIXL_CLOSE_DRAINING_POSTED = 2, /* what we do with theirs */
  ORBITE_NIXL_CLOSE_RETIRING = 3,
  ORBITE_NIXL_CLOSE_CLOSED = 4,
  ORBITE_NIXL_CLOSE_UNQUIESCED = 5
} orbite_nixl_close_phase_t;

typedef struct orbite_nixl_close {
  orbite_nixl_record_t record; /* in */
  int32_t phase;               /* orbite_nixl_close_phase_t */
  uint32_t executions_unresolved;
  uint32_t registrations_unresolved;
  uint32_t peers_unresolved;
} orbite_nixl_close_t;

/* The log level of ORBITE_LOG, if set, goes before the one of the configuration. At most 1024
 * engines of one process exist at a time: BUDGET_EXHAUSTED. */
ORBITE_NIXL_API orbite_nixl_status_t
orbite_nixl_engine_create(const orbite_nixl_engine_options_t* options, orbite_nixl_engine_t* engine,
                          orbite_nixl_error_t* error);
/* Fences everything at the first call, then waits at most timeout_ns (0: observe only) and says
 * where the close stands. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_engine_close(orbite_nixl_engine_t engine,
                                                              uint64_t timeout_ns,
                                                              orbite_nixl_close_t* close,
                                                              orbite_nixl_error_t* error);
/* Ends the handle and every handle made from it: from its first moment on they are STALE_HANDLE for
 * other threads. A call that another thread is inside ends first. Closes with the engine's
 * configured bound; what is unresolved after that goes to quarantine and the library stays in
 * memory. Blocks at most twice that bound and a second. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_engine_release(orbite_nixl_engine_t engine,
                                                                orbite_nixl_error_t* error);

/* ---- Memory ---- */

typedef enum orbite_nixl_memory_kind { ORBITE_NIXL_MEMORY_DRAM = 0 } orbite_nixl_memory_kind_t;

#define ORBITE_NIXL_ACCESS_LOCAL 1u        /* we may read and write it: always needed */
#define ORBITE_NIXL_ACCESS_REMOTE_READ 2u  /* peers may read it */
#define ORBITE_NIXL_ACCESS_REMOTE_WRITE 4u /* peers may write it */
#define ORBITE_NIXL_ACCESS_ALL 7u

typedef struct orbite_nixl_memory {
  orbite_nixl_record_t record;
  uint64_t address;   /* not 0 */
  uint64_t length;    /* bytes, not 0, address + length must not overflow */
  uint64_t device_id; /* kept and reported, not interpreted for DRAM */
  uint32_t kind;      /* orbite_nixl_memory_kind_t */
  uint32_t access;    /* ORBITE_NIXL_ACCESS_* */
  /* Called once, when nothing can touch the range any more: from a thread of the engine, or of a
   * caller that is inside a call on it (deregister itself, for one). May be NULL. It must not call
   * back into this library. Not called for a registration that is never proved retired. */
  void (*retired)(void* context);
  void* context;
} orbite_nixl_memory_t;

typedef enum orbite_nixl_registration_state {
  ORBITE_NIXL_REGISTRATION_LIVE = 0,
  ORBITE_NIXL_REGISTRATION_FENCED = 1, /* deregistered, loans remain */
  ORBITE_NIXL_REGISTRATION_RETIRED = 2,
  ORBITE_NIXL_REGISTRATION_UNQUIESCED = 3
} orbite_nixl_registration_state_t;

/* The memory stays the caller's and must stay mapped until the registration is RETIRED. Duplicates
 * and overlaps are allowed and are separate registrations. */
ORBITE_NIXL_API orbite_nixl_status_t
orbite_nixl_memory_register(orbite_nixl_engine_t engine, const orbite_nixl_memory_t* memory,
                            orbite_nixl_registration_t* registration, orbite_nixl_error_t* error);
/* Fences at once: no new post, local or remote, can borrow it. Retires when the last loan is back.
 * OK says that the fence stands, not that the memory may be freed: `state` (may be NULL) says that.
 */
ORBITE_NIXL_API orbite_nixl_status_t
orbite_nixl_memory_deregister(orbite_nixl_engine_t engine, orbite_nixl_registration_t registration,
                              int32_t* state, orbite_nixl_error_t* error);
/* A registration that has retired is ORBITE_NIXL_ERR_STALE_HANDLE from then on, or RETIRED: both
 * mean that it is gone. */
ORBITE_NIXL_API orbite_nixl_status_t
orbite_nixl_memory_query(orbite_nixl_engine_t engine, orbite_nixl_registration_t registration,
                         int32_t* state, orbite_nixl_error_t* error);
/* The public blob of a registration for peers. `bytes` is in/out: capacity in, size out; too small
 * a buffer (or NULL) is BUFFER_TOO_SMALL with the needed size in *bytes. */
ORBITE_NIXL_API orbite_nixl_status_t
orbite_nixl_memory_export(orbite_nixl_engine_t engine, orbite_nixl_registration_t registration,
                          void* buffer, size_t* bytes, orbite_nixl_error_t* error);

/* ---- Shared memory ---- */

/* A range that lies in one piece of it and is registered can be reached by engines of this host
 * without the network. No call here needs an engine, and none is undone by one that closes. */

#define ORBITE_NIXL_SHARED_NAME_BYTES_MAX 64
#define ORBITE_NIXL_SHARED_BYTES_MAX (1ull << 46)
#define ORBITE_NIXL_SHARED_HUGE_PAGES 1u /* of the system's: UNSUPPORTED when it has too few */

typedef struct orbite_nixl_shared_options {
  orbite_nixl_record_t record;
  uint64_t bytes;    /* 1..ORBITE_NIXL_SHARED_BYTES_MAX; rounded up to whole pages inside */
  const char* name;  /* for people who look at the process; NULL: "orbite" */
  size_t name_bytes; /* at most ORBITE_NIXL_SHARED_NAME_BYTES_MAX, none of them 0 */
  uint32_t flags;    /* ORBITE_NIXL_SHARED_* */
  uint32_t reserved;
} orbite_nixl_shared_options_t;

/* Zeros, at *address. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_shared_allocate(
    const orbite_nixl_shared_options_t* options, orbite_nixl_shared_t* shared, uint64_t* address,
    orbite_nixl_error_t* error);
/* Pages that the caller has mapped already: `fd` is a memfd with the seals F_SEAL_SHRINK and
 * F_SEAL_GROW, open for reading and writing, and [address, address + bytes) is one run of it,
 * mapped with MAP_SHARED for reading and writing. All of that is checked: INVALID_ARGUMENT,
 * INVALID_RANGE. A range that overlaps other shared memory is INVALID_RANGE. The descriptor is
 * duplicated; the mapping stays the caller's and must stay until the free has answered OK. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_shared_import(int32_t fd, uint64_t address,
                                                               uint64_t bytes,
                                                               orbite_nixl_shared_t* shared,
                                                               orbite_nixl_error_t* error);
/* New registrations are of ordinary memory from now on. What was allocated goes at once, or when
 * the last registration of it has retired: its owner must not touch it any more. For what was
 * imported, ACTIVE while a registration holds part of it: then nothing has changed, and the mapping
 * must stay.
 */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_shared_free(orbite_nixl_shared_t shared,
                                                             orbite_nixl_error_t* error);

/* ---- Peers ---- */

/* Our connection blob: endpoint, epoch, secret. The same bytes for the life of the engine. In/out
 * as above. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_peer_export(orbite_nixl_engine_t engine,
                                                             void* buffer, size_t* bytes,
                                                             orbite_nixl_error_t* error);
/* Ourselves as a peer: for transfers and notifications to this same engine. Retire it like any
 * other. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_peer_self(orbite_nixl_engine_t engine,
                                                           orbite_nixl_peer_t* peer,
                                                           orbite_nixl_error_t* error);
/* Validates a connection blob and binds `name` (the peer's agent name, at most
 * ORBITE_NIXL_NAME_BYTES_MAX bytes) to its endpoint and epoch. No network traffic. The same name
 * with the same blob gives another handle on the same peer; with a changed blob the old one is
 * retired first, so requests prepared for it fail with PEER_RETIRED and never reach the new one. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_peer_import(orbite_nixl_engine_t engine,
                                                             const char* name, size_t name_bytes,
                                                             const void* blob, size_t blob_bytes,
                                                             orbite_nixl_peer_t* peer,
                                                             orbite_nixl_error_t* error);
/* Blocks until a connection stands or at most timeout_ns (0: the configured connect timeout).
 * Posting connects by itself; this is for callers who want to know. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_peer_connect(orbite_nixl_engine_t engine,
                                                              orbite_nixl_peer_t peer,
                                                              uint64_t timeout_ns,
                                                              orbite_nixl_error_t* error);
/* Fences new posts to the peer under its epoch; work under way drains and stays pollable. Never
 * blocks. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_peer_retire(orbite_nixl_engine_t engine,
                                                             orbite_nixl_peer_t peer,
                                                             orbite_nixl_error_t* error);
/* An operator's word that the peer's host or process is fenced: it can touch nothing any more.
 * Unproved executions against it retire with effect unknown; the statement is logged and counted.
 */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_peer_confirm_fenced(orbite_nixl_engine_t engine,
                                                                     orbite_nixl_peer_t peer,
                                                                     orbite_nixl_error_t* error);

/* ---- Unresolved work ---- */

#define ORBITE_NIXL_EPOCH_BYTES 16
#define ORBITE_NIXL_ADDRESS_BYTES 64

/* What is not retired at one peer although its outcome is known: failed, canceled, past its
 * deadline. For as long as it stands here, its buffers are in use. */
typedef struct orbite_nixl_unresolved {
  orbite_nixl_record_t record;             /* in */
  uint8_t epoch[ORBITE_NIXL_EPOCH_BYTES];  /* the life of the peer that it was posted to */
  char name[ORBITE_NIXL_NAME_BYTES_MAX];   /* name_bytes of it: any bytes */
  char address[ORBITE_NIXL_ADDRESS_BYTES]; /* of the connection in trouble, NUL-terminated; "" when
                                              none is: the rest is on its way */
  uint32_t name_bytes;
  int32_t status; /* orbite_nixl_status_t: what happened to that connection, else to the requests */
  int32_t native_errno;
  uint32_t retired;     /* 1: no handle of ours names this life any more */
  uint32_t requests;    /* those whose outcome is known */
  uint32_t reserved;    /* 0 */
  uint64_t bytes;       /* of these */
  uint64_t pieces;      /* of them under way on connections in trouble: no answer came, and none is
                           expected there */
  uint64_t duration_ns; /* since the first of these connections got into trouble; 0: none is */
} orbite_nixl_unresolved_t;

/* The peers with unresolved work, by epoch; retired ones too. `count` is in/out: how many records
 * `peers` has room for, each with its head set; how many peers there are. When there is room for
 * too few (or the pointer is NULL), BUFFER_TOO_SMALL is returned and only the count is set, which
 * may have changed by the next call. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_unresolved_read(orbite_nixl_engine_t engine,
                                                                 orbite_nixl_unresolved_t* peers,
                                                                 size_t* count,
                                                                 orbite_nixl_error_t* error);
/* orbite_nixl_peer_confirm_fenced for a life of a peer that perhaps no handle names any more: for
 * all peers of that epoch (ORBITE_NIXL_EPOCH_BYTES). NOT_FOUND when none is known and nothing
 * posted to it is unresolved. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_epoch_confirm_fenced(orbite_nixl_engine_t engine,
                                                                      const uint8_t* epoch,
                                                                      orbite_nixl_error_t* error);

/* ---- Ranges of peers ---- */

/* A lease on the range that a peer's public blob describes. `address` and `length` must lie inside
 * it. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_range_import(
    orbite_nixl_engine_t engine, orbite_nixl_peer_t peer, const void* blob, size_t blob_bytes,
    uint64_t address, uint64_t length, orbite_nixl_range_t* range, orbite_nixl_error_t* error);
/* A lease on one of our own registrations, for transfers to ourselves. Releasing it never
 * deregisters. */
ORBITE_NIXL_API orbite_nixl_status_t
orbite_nixl_range_local(orbite_nixl_engine_t engine, orbite_nixl_registration_t registration,
                        orbite_nixl_range_t* range, orbite_nixl_error_t* error);
/* Fences new prepares and posts with it; admitted requests keep what they hold. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_range_release(orbite_nixl_engine_t engine,
                                                               orbite_nixl_range_t range,
                                                               orbite_nixl_error_t* error);

/* ---- Requests ---- */

typedef enum orbite_nixl_operation {
  ORBITE_NIXL_READ = 0, /* remote to local */
  ORBITE_NIXL_WRITE = 1 /* local to remote */
} orbite_nixl_operation_t;

typedef struct orbite_nixl_descriptor {
  uint64_t address;
  uint64_t length; /* bytes, not 0; equal on both sides of a pair */
  uint64_t owner;  /* local list: orbite_nixl_registration_t; remote list: orbite_nixl_range_t */
} orbite_nixl_descriptor_t;

typedef struct orbite_nixl_prepare {
  orbite_nixl_record_t record;
  uint32_t operation; /* orbite_nixl_operation_t */
  uint32_t reserved;
  orbite_nixl_peer_t peer;
  const orbite_nixl_descriptor_t* local; /* `count` of each; copied */
  const orbite_nixl_descriptor_t* remote;
  size_t count; /* not 0 */
} orbite_nixl_prepare_t;

typedef struct orbite_nixl_post {
  orbite_nixl_record_t record;
  /* Delivered to the peer after the bytes, before success; copied. NULL: none. */
  const void* notification;
  size_t notification_bytes; /* 0 with a non-NULL pointer is a notification of no bytes */
  uint64_t timeout_ns;       /* from now to the logical outcome; 0: the configured default */
} orbite_nixl_post_t;

typedef enum orbite_nixl_logical {
  ORBITE_NIXL_LOGICAL_NONE = 0, /* not posted, or not known yet */
  ORBITE_NIXL_LOGICAL_SUCCESS = 1,
  ORBITE_NIXL_LOGICAL_CANCELED = 2,
  ORBITE_NIXL_LOGICAL_FAILED = 3
} orbite_nixl_logical_t;

/* What is known of the destination. */
typedef enum orbite_nixl_effect {
  ORBITE_NIXL_EFFECT_NONE = 0,     /* nothing was written */
  ORBITE_NIXL_EFFECT_PREFIX = 1,   /* exactly bytes_prefix bytes, in list order, and no others */
  ORBITE_NIXL_EFFECT_COMPLETE = 2, /* all */
  ORBITE_NIXL_EFFECT_UNKNOWN = 3   /* at least bytes_prefix, perhaps others */
} orbite_nixl_effect_t;

/* What may still touch the buffers. */
typedef enum orbite_nixl_drain {
  ORBITE_NIXL_DRAIN_IDLE = 0, /* never posted */
  ORBITE_NIXL_DRAIN_PENDING = 1,
  ORBITE_NIXL_DRAIN_RETIRED = 2,   /* nothing, neither here nor at the peer */
  ORBITE_NIXL_DRAIN_UNQUIESCED = 3 /* the proof cannot be had */
} orbite_nixl_drain_t;

typedef struct orbite_nixl_result {
  orbite_nixl_record_t record; /* in */
  int32_t terminal; /* 1: outcome known and drain retired. Only then may buffers be reused */
  int32_t logical;  /* orbite_nixl_logical_t */
  int32_t drain;    /* orbite_nixl_drain_t: never derived from `logical` */
  int32_t effect;   /* orbite_nixl_effect_t */
  int32_t status;   /* orbite_nixl_status_t: OK, or why it failed */
  int32_t native_errno;
  uint64_t bytes_prefix; /* exact count of leading bytes known to be in place */
  uint64_t bytes_total;
  char route[16]; /* transport used, NUL-terminated, "" before the first post */
} orbite_nixl_result_t;

/* Validates both lists and copies them. Moves nothing. */
ORBITE_NIXL_API orbite_nixl_status_t
orbite_nixl_request_prepare(orbite_nixl_engine_t engine, const orbite_nixl_prepare_t* prepare,
                            orbite_nixl_request_t* request, orbite_nixl_error_t* error);
/* Admits one execution. Never waits for payload. ACTIVE while the last one has not retired,
 * NOT_REPOSTABLE after anything but a drained success. `post` may be NULL: no notification, default
 * deadline. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_request_post(orbite_nixl_engine_t engine,
                                                              orbite_nixl_request_t request,
                                                              const orbite_nixl_post_t* post,
                                                              orbite_nixl_result_t* result,
                                                              orbite_nixl_error_t* error);
/* One bounded step of progress, then the state. OK means that the query was answered. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_request_check(orbite_nixl_engine_t engine,
                                                               orbite_nixl_request_t request,
                                                               orbite_nixl_result_t* result,
                                                               orbite_nixl_error_t* error);
/* The state, without progress. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_request_query(orbite_nixl_engine_t engine,
                                                               orbite_nixl_request_t request,
                                                               orbite_nixl_result_t* result,
                                                               orbite_nixl_error_t* error);
/* A wish. What has not been sent is dropped; what runs drains. Keep checking: the outcome comes
 * from there. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_request_cancel(orbite_nixl_engine_t engine,
                                                                orbite_nixl_request_t request,
                                                                orbite_nixl_error_t* error);
/* Ends the handle. ACTIVE, with the handle still good, while its execution has not retired. Cancels
 * nothing. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_request_release(orbite_nixl_engine_t engine,
                                                                 orbite_nixl_request_t request,
                                                                 orbite_nixl_error_t* error);
/* Ends the handle whatever its state: the engine keeps the execution with all that it holds until
 * it has retired. For callers that have lost their pointer; the buffers must stay until the
 * registration is retired. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_request_abandon(orbite_nixl_engine_t engine,
                                                                 orbite_nixl_request_t request,
                                                                 orbite_nixl_error_t* error);

/* ---- Notifications ---- */

/* Copies and sends a message of its own; any bytes, 0 of them included. OK: accepted. It is
 * delivered once, or dropped if the peer is gone (counted and logged); never sent twice. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_notification_send(orbite_nixl_engine_t engine,
                                                                   orbite_nixl_peer_t peer,
                                                                   const void* message,
                                                                   size_t message_bytes,
                                                                   orbite_nixl_error_t* error);
/* Takes the oldest message received. NOT_FOUND: none. name_bytes and message_bytes are in/out; when
 * a buffer is too small both are set to what is needed, BUFFER_TOO_SMALL is returned and the
 * message stays. */
ORBITE_NIXL_API orbite_nixl_status_t
orbite_nixl_notification_receive(orbite_nixl_engine_t engine, char* name, size_t* name_bytes,
                                 void* message, size_t* message_bytes, orbite_nixl_error_t* error);

/* ---- What is known ---- */

/* A JSON object: version, transports with the exact reason why one is off, addresses, epoch,
 * counters, budgets in use, unresolved work per peer. Not NUL-terminated. In/out buffer as above;
 * the size needed may grow between two calls. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_engine_info(orbite_nixl_engine_t engine,
                                                             char* buffer, size_t* bytes,
                                                             orbite_nixl_error_t* error);
/* Executions per route since this library was loaded, over all engines of the process:
 * "tcp:12,local:3". Returns the length without the NUL, or -1 when `buffer` is NULL or `capacity`
 * too small for both. */
ORBITE_NIXL_API int orbite_nixl_process_routes(char* buffer, size_t capacity);

/* ---- Telemetry ---- */

/* What each number means: docs/telemetry.md, where a field stands as orbite_<field>. Each is read
 * on its own while work goes on. */

#define ORBITE_NIXL_LATENCY_BOUNDS 52
#define ORBITE_NIXL_LATENCY_BUCKETS 53
#define ORBITE_NIXL_FAILURES_MAX 64

typedef enum orbite_nixl_class {
  ORBITE_NIXL_CLASS_LATENCY = 0,
  ORBITE_NIXL_CLASS_BULK = 1
} orbite_nixl_class_t;

typedef struct orbite_nixl_failure {
  int32_t status; /* orbite_nixl_status_t */
  uint32_t reserved;
  uint64_t count;
} orbite_nixl_failure_t;

/* One way that transfers take. */
typedef struct orbite_nixl_route {
  orbite_nixl_record_t record; /* in */
  char transport[16];          /* NUL-terminated */
  uint32_t operation;          /* orbite_nixl_operation_t */
  uint32_t qos;                /* orbite_nixl_class_t */
  uint64_t posted;
  uint64_t succeeded; /* succeeded + canceled + failed is what has retired */
  uint64_t canceled;
  uint64_t failed;
  uint64_t bytes;            /* of successes */
  uint64_t active;           /* posted and not retired */
  uint64_t unquiesced;       /* of these, those whose outcome is known */
  uint64_t unquiesced_bytes; /* of their requests */
  uint64_t latency_sum_ns;   /* of successes, from admission to retirement */
  /* Successes, each in one bucket: bucket i is for latencies up to latency_bounds_ns[i], the last
   * one for longer ones. */
  uint64_t latency[ORBITE_NIXL_LATENCY_BUCKETS];
  uint32_t failure_count; /* entries of `failures` that are set */
  uint32_t reserved;
  orbite_nixl_failure_t failures[ORBITE_NIXL_FAILURES_MAX]; /* by code, those that occurred */
} orbite_nixl_route_t;

typedef struct orbite_nixl_budget {
  orbite_nixl_record_t record; /* in */
  char name[32];               /* NUL-terminated */
  char key[64];                /* of the configuration, which sets `max`; NUL-terminated */
  uint64_t used;
  uint64_t max;
  uint64_t refused; /* how often it had no room */
} orbite_nixl_budget_t;

typedef struct orbite_nixl_telemetry {
  orbite_nixl_record_t record; /* in */
  /* Counters: they only grow. */
  uint64_t requests_adopted;
  uint64_t notifications_sent;
  uint64_t notifications_failed;
  uint64_t notifications_received;
  uint64_t notifications_dropped;
  uint64_t notifications_refused;
  uint64_t lanes_connected;
  uint64_t lanes_reconnected;
  uint64_t lanes_failed;
  uint64_t lanes_refused;
  uint64_t lanes_idle_closed;
  uint64_t lanes_drained;
  uint64_t served_accepted;
  uint64_t served_rejected;
  uint64_t served_frames;
  uint64_t served_frames_refused;
  uint64_t protocol_violations;
  uint64_t peers_confirmed_fenced;
  /* As it stands. */
  uint64_t lanes_open;
  uint64_t served_lanes;
  uint64_t slices_outstanding;
  uint64_t slices_unproved;
  uint64_t registrations_live;
  uint64_t registrations_fenced;
  uint64_t registrations_quarantined;
  uint64_t registered_bytes;
  uint64_t quarantined_bytes;
  uint64_t loans_out;
  uint64_t latency_bounds_ns[ORBITE_NIXL_LATENCY_BOUNDS];
} orbite_nixl_telemetry_t;

/* Fills caller-owned records. `route_count` and `budget_count` are in/out: how many records
 * `routes` and `budgets` have room for, each with its head set; how many there are. When there is
 * room for too few (or the pointer is NULL), BUFFER_TOO_SMALL is returned and only the counts are
 * set. They do not change during the life of an engine. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_telemetry_read(
    orbite_nixl_engine_t engine, orbite_nixl_telemetry_t* telemetry, orbite_nixl_route_t* routes,
    size_t* route_count, orbite_nixl_budget_t* budgets, size_t* budget_count,
    orbite_nixl_error_t* error);
/* The same as Prometheus text exposition. Not NUL-terminated. In/out buffer as above; the size
 * needed may grow between two calls. */
ORBITE_NIXL_API orbite_nixl_status_t orbite_nixl_telemetry_text(orbite_nixl_engine_t engine,
                                                                char* buffer, size_t* bytes,
                                                                orbite_nixl_error_t* error);

#ifdef __cplusplus
}
#endif

#endif /* ORBITE_NIXL_H */
