/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes, each with an engine, move bytes to and from each other over TCP on loopback, with
 * a notification each way, and verify every byte and the guards around them. Built as a consumer of
 * the installed library would be: C11, the installed header, pkg-config.
 */
#define _POSIX_C_SOURCE 200809L
#include <orbite/nixl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  kGuardBytes = 4096,
  kHalfBytes = 3 * 1024 * 1024 + 17,
  kFragments = 64,
  kBlobBytesMax = 4096,
  kSecondsMax = 60
};

static const char kConfig[] =
    "{\"listen\": {\"address\": \"127.0.0.1\"}, \"advertise\": {\"addresses\": [\"127.0.0.1\"]},"
    " \"transfer\": {\"routes\": [\"tcp\"]}}";
/* A NUL inside, and no NUL at the end. */
static const char kMessage[] = {'d', 'o', 'n', 'e', '\0', '!'};

struct area {
  unsigned char front[kGuardBytes];
  unsigned char written[kHalfBytes]; /* the other side writes here, or we write from here */
  unsigned char middle[kGuardBytes];
  unsigned char read[kHalfBytes]; /* the other side reads from here, or we read into here */
  unsigned char back[kGuardBytes];
};

struct side {
  int number;
  int channel;
  orbite_nixl_engine_t engine;
  orbite_nixl_error_t error;
  struct area* served;
  struct area* own;
};

static void give_up(const struct side* side, const char* what) {
  fprintf(stderr, "side %d: %s: %s\n", side->number, what, side->error.message);
  exit(1);
}

#define REQUIRE(side, condition)   \
  do {                             \
    if (!(condition)) {            \
      give_up((side), #condition); \
    }                              \
  } while (0)

static void send_all(const struct side* side, const void* data, size_t bytes) {
  const char* position = data;
  while (bytes > 0) {
    const ssize_t sent = write(side->channel, position, bytes);
    REQUIRE(side, sent > 0);
    position += sent;
    bytes -= (size_t)sent;
  }
}

static void receive_all(const struct side* side, void* data, size_t bytes) {
  char* position = data;
  while (bytes > 0) {
    const ssize_t received = read(side->channel, position, bytes);
    REQUIRE(side, received > 0);
    position += received;
    bytes -= (size_t)received;
  }
}

/* Both sides have come this far. */
static void meet(const struct side* side) {
  char token = 'x';
  send_all(side, &token, 1);
  receive_all(side, &token, 1);
}

static unsigned char pattern(int side, size_t offset) {
  return (unsigned char)((offset * 131 + offset / 251 + (size_t)side * 77 + 5) & 0xFF);
}

static void fill(unsigned char* bytes, size_t count, int side) {
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = pattern(side, i);
  }
}

static int holds(const unsigned char* bytes, size_t count, int side) {
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] != pattern(side, i)) {
      fprintf(stderr, "byte %zu is %u instead of %u\n", i, bytes[i], pattern(side, i));
      return 0;
    }
  }
  return 1;
}

static struct area* make_area(const struct side* side) {
  struct area* area = malloc(sizeof(*area));
  REQUIRE(side, area != NULL);
  memset(area, 0xA5, sizeof(*area));
  return area;
}

static int guards_hold(const struct area* area) {
  for (size_t i = 0; i < kGuardBytes; ++i) {
    if (area->front[i] != 0xA5 || area->middle[i] != 0xA5 || area->back[i] != 0xA5) {
      return 0;
    }
  }
  return 1;
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static orbite_nixl_registration_t register_area(struct side* side, struct area* area,
                                                uint32_t access) {
  const orbite_nixl_memory_t memory = {.record = ORBITE_NIXL_RECORD(orbite_nixl_memory_t),
                                       .address = (uint64_t)(uintptr_t)area,
                                       .length = sizeof(*area),
                                       .kind = ORBITE_NIXL_MEMORY_DRAM,
                                       .access = access};
  orbite_nixl_registration_t registration = 0;
  REQUIRE(side, orbite_nixl_memory_register(side->engine, &memory, &registration, &side->error) ==
                    ORBITE_NIXL_OK);
  return registration;
}

/* Tells the other side where our served area is. */
static void publish(struct side* side, orbite_nixl_registration_t served) {
  unsigned char blob[kBlobBytesMax];
  size_t bytes = sizeof(blob);
  const uint64_t address = (uint64_t)(uintptr_t)side->served;
  REQUIRE(side, orbite_nixl_peer_export(side->engine, blob, &bytes, &side->error) == 0);
  send_all(side, &bytes, sizeof(bytes));
  send_all(side, blob, bytes);
  bytes = sizeof(blob);
  REQUIRE(side, orbite_nixl_memory_export(side->engine, served, blob, &bytes, &side->error) == 0);
  send_all(side, &bytes, sizeof(bytes));
  send_all(side, blob, bytes);
  send_all(side, &address, sizeof(address));
}

static size_t receive_blob(struct side* side, unsigned char* blob) {
  size_t bytes = 0;
  receive_all(side, &bytes, sizeof(bytes));
  REQUIRE(side, bytes <= kBlobBytesMax);
  receive_all(side, blob, bytes);
  return bytes;
}

static void subscribe(struct side* side, orbite_nixl_peer_t* peer, orbite_nixl_range_t* range,
                      uint64_t* address) {
  unsigned char blob[kBlobBytesMax];
  const char* name = side->number == 0 ? "side-1" : "side-0";
  size_t bytes = receive_blob(side, blob);
  REQUIRE(side, orbite_nixl_peer_import(side->engine, name, strlen(name), blob, bytes, peer,
                                        &side->error) == ORBITE_NIXL_OK);
  bytes = receive_blob(side, blob);
  receive_all(side, address, sizeof(*address));
  REQUIRE(side,
          orbite_nixl_range_import(side->engine, *peer, blob, bytes, *address, sizeof(struct area),
                                   range, &side->error) == ORBITE_NIXL_OK);
}

/* Posts one request and drives it to its end. */
static void transfer(struct side* side, orbite_nixl_peer_t peer, uint32_t operation, uint64_t local,
                     orbite_nixl_registration_t registration, uint64_t remote,
                     orbite_nixl_range_t range, const orbite_nixl_post_t* post) {
  orbite_nixl_descriptor_t here[kFragments];
  orbite_nixl_descriptor_t there[kFragments];
  const uint64_t step = kHalfBytes / kFragments;
  for (uint64_t i = 0; i < kFragments; ++i) {
    const uint64_t length = i + 1 == kFragments ? kHalfBytes - step * i : step;
    here[i] = (orbite_nixl_descriptor_t){local + step * i, length, registration};
    there[i] = (orbite_nixl_descriptor_t){remote + step * i, length, range};
  }
  const orbite_nixl_prepare_t prepare = {.record = ORBITE_NIXL_RECORD(orbite_nixl_prepare_t),
                                         .operation = operation,
                                         .peer = peer,
                                         .local = here,
                                         .remote = there,
                                         .count = kFragments};
  orbite_nixl_result_t result = {.record = ORBITE_NIXL_RECORD(orbite_nixl_result_t)};
  orbite_nixl_request_t request = 0;
  REQUIRE(side, orbite_nixl_request_prepare(side->engine, &prepare, &request, &side->error) == 0);
  REQUIRE(side, orbite_nixl_request_post(side->engine, request, post, &result, &side->error) == 0);
  const double end = seconds_now() + (double)kSecondsMax;
  while (!result.terminal) {
    REQUIRE(side, seconds_now() < end);
    sched_yield();
    REQUIRE(side, orbite_nixl_request_check(side->engine, request, &result, &side->error) == 0);
  }
  if (result.logical != ORBITE_NIXL_LOGICAL_SUCCESS) {
    fprintf(stderr, "side %d: operation %u: %s\n", side->number, operation,
            orbite_nixl_status_text(result.status));
    exit(1);
  }
  REQUIRE(side, result.effect == ORBITE_NIXL_EFFECT_COMPLETE);
  REQUIRE(side, result.bytes_prefix == kHalfBytes && result.bytes_total == kHalfBytes);
  REQUIRE(side, strcmp(result.route, "tcp") == 0);
  REQUIRE(side, orbite_nixl_request_release(side->engine, request, &side->error) == 0);
}

static void expect_message(struct side* side) {
  char name[ORBITE_NIXL_NAME_BYTES_MAX];
  char message[64];
  size_t name_bytes = 0;
  size_t message_bytes = 0;
  orbite_nixl_status_t status = ORBITE_NIXL_ERR_NOT_FOUND;
  const double end = seconds_now() + (double)kSecondsMax;
  while (status == ORBITE_NIXL_ERR_NOT_FOUND) {
    REQUIRE(side, seconds_now() < end);
    sched_yield();
    name_bytes = sizeof(name);
    message_bytes = sizeof(message);
    status = orbite_nixl_notification_receive(side->engine, name, &name_bytes, message,
                                              &message_bytes, &side->error);
  }
  REQUIRE(side, status == ORBITE_NIXL_OK);
  REQUIRE(side, name_bytes == 6 && memcmp(name, side->number == 0 ? "side-1" : "side-0", 6) == 0);
  REQUIRE(side, message_bytes == sizeof(kMessage) && memcmp(message, kMessage, message_bytes) == 0);
}

/* Until nothing can touch the range any more. */
static void deregister(struct side* side, orbite_nixl_registration_t registration) {
  int32_t state = -1;
  REQUIRE(side, orbite_nixl_memory_deregister(side->engine, registration, &state, &side->error) ==
                    ORBITE_NIXL_OK);
  const double end = seconds_now() + (double)kSecondsMax;
  while (state != ORBITE_NIXL_REGISTRATION_RETIRED) {
    REQUIRE(side, seconds_now() < end);
    sched_yield();
    if (orbite_nixl_memory_query(side->engine, registration, &state, &side->error) ==
        ORBITE_NIXL_ERR_STALE_HANDLE) {
      return;
    }
  }
}

static void close_engine(struct side* side, orbite_nixl_peer_t peer, orbite_nixl_range_t range,
                         const orbite_nixl_registration_t* registrations) {
  orbite_nixl_close_t status = {.record = ORBITE_NIXL_RECORD(orbite_nixl_close_t)};
  REQUIRE(side, orbite_nixl_range_release(side->engine, range, &side->error) == 0);
  REQUIRE(side, orbite_nixl_peer_retire(side->engine, peer, &side->error) == 0);
  for (int i = 0; i < 2; ++i) {
    deregister(side, registrations[i]);
  }
  REQUIRE(side, orbite_nixl_engine_close(side->engine, 10u * 1000000000u, &status, &side->error) ==
                    ORBITE_NIXL_OK);
  REQUIRE(side, status.phase == ORBITE_NIXL_CLOSE_CLOSED);
  REQUIRE(side, orbite_nixl_engine_release(side->engine, &side->error) == ORBITE_NIXL_OK);
}

static void run_side(int number, int channel) {
  struct side side = {.number = number,
                      .channel = channel,
                      .error = {.record = ORBITE_NIXL_RECORD(orbite_nixl_error_t)}};
  const orbite_nixl_engine_options_t options = {
      .record = ORBITE_NIXL_RECORD(orbite_nixl_engine_options_t),
      .name = number == 0 ? "side-0" : "side-1",
      .name_bytes = 6,
      .config = kConfig,
      .config_bytes = sizeof(kConfig) - 1};
  const orbite_nixl_post_t notify = {.record = ORBITE_NIXL_RECORD(orbite_nixl_post_t),
                                     .notification = kMessage,
                                     .notification_bytes = sizeof(kMessage)};
  const int other = 1 - number;
  orbite_nixl_peer_t peer = 0;
  orbite_nixl_range_t range = 0;
  uint64_t remote = 0;
  REQUIRE(&side, orbite_nixl_engine_create(&options, &side.engine, &side.error) == ORBITE_NIXL_OK);
  side.served = make_area(&side);
  side.own = make_area(&side);
  fill(side.served->read, kHalfBytes, number);
  fill(side.own->written, kHalfBytes, number + 2);
  const orbite_nixl_registration_t registrations[2] = {
      register_area(&side, side.served, ORBITE_NIXL_ACCESS_ALL),
      register_area(&side, side.own, ORBITE_NIXL_ACCESS_LOCAL)};
  publish(&side, registrations[0]);
  subscribe(&side, &peer, &range, &remote);
  meet(&side);

  transfer(&side, peer, ORBITE_NIXL_WRITE, (uint64_t)(uintptr_t)side.own->written, registrations[1],
           remote + offsetof(struct area, written), range, &notify);
  transfer(&side, peer, ORBITE_NIXL_READ, (uint64_t)(uintptr_t)side.own->read, registrations[1],
           remote + offsetof(struct area, read), range, NULL);
  REQUIRE(&side, holds(side.own->read, kHalfBytes, other));
  expect_message(&side);
  REQUIRE(&side, holds(side.served->written, kHalfBytes, other + 2));
  meet(&side);

  close_engine(&side, peer, range, registrations);
  REQUIRE(&side, guards_hold(side.served) && guards_hold(side.own));
  REQUIRE(&side, holds(side.served->read, kHalfBytes, number));
  free(side.served);
  free(side.own);
  close(channel);
}

int main(void) {
  int channels[2];
  orbite_nixl_abi_t abi = {.record = ORBITE_NIXL_RECORD(orbite_nixl_abi_t)};
  if (orbite_nixl_abi_query(&abi, NULL) != ORBITE_NIXL_OK ||
      abi.abi_major != ORBITE_NIXL_ABI_MAJOR || (abi.features & ORBITE_NIXL_FEATURE_TCP) == 0) {
    fprintf(stderr, "the library has another ABI than its header\n");
    return 1;
  }
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, channels) != 0) {
    perror("socketpair");
    return 1;
  }
  const pid_t child = fork();
  if (child < 0) {
    perror("fork");
    return 1;
  }
  /* Whatever hangs, ends. */
  alarm(2 * kSecondsMax);
  if (child == 0) {
    close(channels[0]);
    run_side(1, channels[1]);
    return 0;
  }
  close(channels[1]);
  run_side(0, channels[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fprintf(stderr, "side 1 failed (status %d)\n", status);
    return 1;
  }
  char routes[64];
  if (orbite_nixl_process_routes(routes, sizeof(routes)) < 0) {
    return 1;
  }
  printf("orbite %s, ABI %u.%u: %d bytes each way by WRITE and by READ, verified; routes %s\n",
         abi.version, abi.abi_major, abi.abi_minor, kHalfBytes, routes);
  return 0;
}
