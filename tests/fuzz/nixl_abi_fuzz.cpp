// SPDX-License-Identifier: Apache-2.0
// A stream of calls through the C ABI on one engine: records with any head and any number in them,
// blobs whole, bent and made up, handles live, stale and of another kind. Pointers are valid or
// NULL, because a wild one is beyond any check, and memory is that of one arena, because a
// registered range is the caller's word.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "orbite/nixl.h"
#include "support/nixl_records.hpp"

namespace {

using orbite::testing::create;
using orbite::testing::make_record;

constexpr std::size_t kArenaBytes = 64 * 1024;
constexpr std::size_t kCallsMax = 64;
constexpr std::size_t kListMax = 16;
constexpr std::uint64_t kUntouched = 0x5A5A'5A5A'5A5A'5A5A;

constexpr std::string_view kConfig =
    R"({"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"]},)"
    R"( "tcp": {"bulk_lanes_per_peer": 1, "slice_bytes": 65536, "small_bytes": 4096},)"
    R"( "limits": {"descriptors_per_request_max": 1024, "requests_max": 64, "ranges_max": 64,)"
    R"( "registrations_max": 64, "peers_max": 16},)"
    R"( "notifications": {"message_bytes_max": 4096, "inbox_bytes_max": 65536,)"
    R"( "outbox_bytes_max": 65536}, "close": {"timeout_ms": 100}, "log": {"level": "off"}})";

#define REQUIRE(condition)                                                               \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  [[nodiscard]] bool empty() const { return left_ == 0; }
  // The next number; zeros after the end.
  template <typename T>
  T take() {
    T value = 0;
    const std::size_t bytes = std::min(sizeof(T), left_);
    std::memcpy(&value, data_, bytes);
    skip(bytes);
    return value;
  }
  // In a block of exactly their size, so that AddressSanitizer sees each read beyond it.
  std::vector<std::uint8_t> take_bytes(std::size_t bytes_max) {
    const std::size_t bytes = std::min<std::size_t>({take<std::uint16_t>(), bytes_max, left_});
    std::vector<std::uint8_t> taken(data_, data_ + bytes);
    skip(bytes);
    return taken;
  }

 private:
  void skip(std::size_t bytes) {
    data_ += bytes;
    left_ -= bytes;
  }

  const std::uint8_t* data_;
  std::size_t left_;
};

// Of a memory file, mapped for the life of the process.
struct SharedPages {
  SharedPages() {
    fd = ::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(::ftruncate(fd, kArenaBytes) == 0);
    start = ::mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(start != MAP_FAILED);
    REQUIRE(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  }

  int fd = -1;
  void* start = nullptr;
};

// Lives as long as the process.
struct World {
  World() {
    auto error = make_record<orbite_nixl_error_t>();
    if (create("fuzz", kConfig, engine, error) != ORBITE_NIXL_OK) {
      std::fprintf(stderr, "no engine: %s\n", error.message);
      std::abort();
    }
    std::size_t bytes = 0;
    REQUIRE(orbite_nixl_peer_export(engine, nullptr, &bytes, nullptr) ==
            ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
    connection.resize(bytes);
    REQUIRE(orbite_nixl_peer_export(engine, connection.data(), &bytes, nullptr) == ORBITE_NIXL_OK);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() { REQUIRE(orbite_nixl_engine_release(engine, nullptr) == ORBITE_NIXL_OK); }

  orbite_nixl_engine_t engine = 0;
  std::vector<std::uint8_t> connection;
  SharedPages pages;
  std::vector<std::uint8_t> arena = std::vector<std::uint8_t>(kArenaBytes);
};

World& world() {
  static World instance;
  return instance;
}

// Never null: no bytes are not no message.
const void* bytes_of(const std::vector<std::uint8_t>& message) {
  return message.empty() ? static_cast<const void*>("") : message.data();
}

class Calls {
 public:
  explicit Calls(Input input) : input_(input) {}

  void run() {
    for (std::size_t i = 0; i < kCallsMax && !input_.empty(); ++i) {
      one();
    }
    clean_up();
  }

 private:
  void one();
  void create_engine();
  void register_memory();
  void look_at_memory();
  void share();
  void make_peer();
  void use_peer();
  void make_range();
  void prepare();
  void use_request();
  void notify();
  void look_around();
  void look_at_telemetry(orbite_nixl_engine_t owner);
  void clean_up();

  // A call that gives a handle: written on success alone.
  void took(orbite_nixl_status_t status, std::vector<std::uint64_t>& kind) {
    checked(status);
    REQUIRE((status == ORBITE_NIXL_OK) == (handle_ != kUntouched));
    if (status == ORBITE_NIXL_OK) {
      REQUIRE(handle_ != 0);
      kind.push_back(handle_);
    }
    handle_ = kUntouched;
  }
  void checked(orbite_nixl_status_t status) {
    REQUIRE(std::strcmp(orbite_nixl_status_text(status), "unknown error") != 0);
    REQUIRE(status != ORBITE_NIXL_ERR_INTERNAL);
    if (status != ORBITE_NIXL_OK && error_pointer_ != nullptr && sound_error_) {
      REQUIRE(error_.status == status && error_.message[0] != '\0');
    }
  }

  // Mostly the head that the library expects.
  void bend(orbite_nixl_record_t& head) {
    if (input_.take<std::uint8_t>() >= 0xF0) {
      head.size = input_.take<std::uint32_t>();
      head.abi_major = input_.take<std::uint16_t>();
      head.abi_minor = input_.take<std::uint16_t>();
    }
  }
  orbite_nixl_engine_t engine() {
    return input_.take<std::uint8_t>() >= 0xF8 ? input_.take<std::uint64_t>() : world().engine;
  }
  std::uint64_t handle(const std::vector<std::uint64_t>& kind) {
    const auto choice = input_.take<std::uint8_t>();
    if (choice >= 0xF0 || kind.empty()) {
      return input_.take<std::uint64_t>();
    }
    return kind[choice % kind.size()];
  }
  // Inside the arena, empty, or past the end of all memory.
  std::pair<std::uint64_t, std::uint64_t> range() {
    const auto kind = input_.take<std::uint8_t>();
    const std::uint64_t offset = input_.take<std::uint16_t>();
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(world().arena.data()) + offset;
    if (kind >= 0xF8) {
      return {address, ~std::uint64_t{0} - input_.take<std::uint16_t>()};
    }
    if (kind >= 0xF0) {
      return {0, input_.take<std::uint16_t>()};
    }
    return {address, std::min<std::uint64_t>(input_.take<std::uint16_t>(), kArenaBytes - offset)};
  }
  // A blob of ours, whole or bent, or made up.
  std::vector<std::uint8_t> blob(std::vector<std::uint8_t> good) {
    const auto kind = input_.take<std::uint8_t>();
    if (kind >= 0xC0) {
      return input_.take_bytes(4096);
    }
    if (kind >= 0x80 && !good.empty()) {
      good[input_.take<std::uint16_t>() % good.size()] ^= input_.take<std::uint8_t>();
      good.resize(good.size() - input_.take<std::uint8_t>() % good.size());
    }
    good.shrink_to_fit();
    return good;
  }
  std::vector<std::uint8_t> memory_blob() {
    std::array<std::uint8_t, 1024> buffer;
    std::size_t bytes = buffer.size();
    const std::uint64_t registration = handle(registrations_);
    const orbite_nixl_status_t status =
        orbite_nixl_memory_export(world().engine, registration, buffer.data(), &bytes, nullptr);
    checked_alone(status);
    return status == ORBITE_NIXL_OK
               ? std::vector<std::uint8_t>(buffer.data(), buffer.data() + bytes)
               : std::vector<std::uint8_t>();
  }
  // Of a call without an error record.
  static void checked_alone(orbite_nixl_status_t status) {
    REQUIRE(std::strcmp(orbite_nixl_status_text(status), "unknown error") != 0);
    REQUIRE(status != ORBITE_NIXL_ERR_INTERNAL);
  }

  Input input_;
  orbite_nixl_error_t error_ = make_record<orbite_nixl_error_t>();
  orbite_nixl_error_t* error_pointer_ = &error_;
  bool sound_error_ = true;
  bool created_ = false;
  std::uint64_t handle_ = kUntouched;
  std::vector<std::uint64_t> registrations_;
  std::vector<std::uint64_t> shared_;
  std::vector<std::uint64_t> peers_;
  std::vector<std::uint64_t> ranges_;
  std::vector<std::uint64_t> requests_;
};

void Calls::one() {
  const auto call = input_.take<std::uint8_t>();
  error_ = make_record<orbite_nixl_error_t>();
  error_pointer_ = &error_;
  sound_error_ = true;
  if ((call & 0x80) != 0) {
    bend(error_.record);
    sound_error_ =
        error_.record.size == sizeof(error_) && error_.record.abi_major == ORBITE_NIXL_ABI_MAJOR;
  } else if ((call & 0x40) != 0) {
    error_pointer_ = nullptr;
  }
  using Call = void (Calls::*)();
  static constexpr Call kCalls[] = {
      &Calls::register_memory, &Calls::look_at_memory, &Calls::make_peer,   &Calls::use_peer,
      &Calls::make_range,      &Calls::prepare,        &Calls::use_request, &Calls::notify,
      &Calls::look_around,     &Calls::create_engine};
  if ((call & 0x3F) == 0x3F) {
    share();
    return;
  }
  (this->*kCalls[(call & 0x3F) % std::size(kCalls)])();
}

void Calls::create_engine() {
  // A thread and sockets each time: once for an input is enough.
  if (std::exchange(created_, true)) {
    return;
  }
  std::vector<std::uint8_t> text(kConfig.begin(), kConfig.end());
  text = blob(std::move(text));
  // Only what still names loopback may be tried: an engine listens where it is told.
  const std::string config(text.begin(), text.end());
  const auto name = input_.take_bytes(300);
  auto options = make_record<orbite_nixl_engine_options_t>();
  bend(options.record);
  options.name = reinterpret_cast<const char*>(name.data());
  options.name_bytes = name.size();
  options.config = config.data();
  options.config_bytes = config.size();
  if (config.find("\"127.0.0.1\"") == std::string::npos) {
    options.config_bytes = std::min<std::size_t>(config.size(), 1);
  }
  const orbite_nixl_status_t status = orbite_nixl_engine_create(&options, &handle_, error_pointer_);
  checked(status);
  REQUIRE((status == ORBITE_NIXL_OK) == (handle_ != kUntouched));
  if (status == ORBITE_NIXL_OK) {
    REQUIRE(orbite_nixl_engine_release(handle_, nullptr) == ORBITE_NIXL_OK);
  }
  handle_ = kUntouched;
}

void Calls::register_memory() {
  auto memory = make_record<orbite_nixl_memory_t>();
  bend(memory.record);
  std::tie(memory.address, memory.length) = range();
  memory.device_id = input_.take<std::uint16_t>();
  const auto choice = input_.take<std::uint8_t>();
  memory.kind = choice >= 0xF8 ? input_.take<std::uint32_t>() : 0;
  memory.access = choice >= 0xF0 ? input_.take<std::uint32_t>() : choice % 8;
  const orbite_nixl_engine_t owner = engine();
  took(orbite_nixl_memory_register(owner, &memory, &handle_, error_pointer_), registrations_);
}

void Calls::look_at_memory() {
  std::int32_t state = -1;
  const orbite_nixl_engine_t owner = engine();
  const std::uint64_t registration = handle(registrations_);
  if (input_.take<std::uint8_t>() >= 0x80) {
    checked(orbite_nixl_memory_deregister(owner, registration, &state, error_pointer_));
  } else {
    checked(orbite_nixl_memory_query(owner, registration, &state, error_pointer_));
  }
  REQUIRE(state >= -1 && state <= ORBITE_NIXL_REGISTRATION_UNQUIESCED);
}

void Calls::share() {
  const auto choice = input_.take<std::uint8_t>();
  switch (choice % 4) {
    case 0: {
      const auto name = input_.take_bytes(100);
      auto options = make_record<orbite_nixl_shared_options_t>();
      bend(options.record);
      options.bytes = choice >= 0xF0 ? input_.take<std::uint64_t>() : input_.take<std::uint16_t>();
      options.name = reinterpret_cast<const char*>(name.data());
      options.name_bytes = name.size();
      options.flags = choice >= 0xE0 ? input_.take<std::uint32_t>() : 0;
      options.reserved = choice >= 0xF8 ? input_.take<std::uint32_t>() : 0;
      std::uint64_t address = kUntouched;
      took(orbite_nixl_shared_allocate(&options, &handle_, &address, error_pointer_), shared_);
      break;
    }
    case 1: {
      const SharedPages& pages = world().pages;
      const int fd = choice >= 0xC0 ? input_.take<std::int32_t>() : pages.fd;
      const std::uint64_t address = choice >= 0xE0 ? input_.take<std::uint64_t>()
                                                   : reinterpret_cast<std::uint64_t>(pages.start) +
                                                         input_.take<std::uint16_t>();
      const std::uint64_t bytes =
          choice >= 0xF0 ? input_.take<std::uint64_t>() : input_.take<std::uint16_t>();
      took(orbite_nixl_shared_import(fd, address, bytes, &handle_, error_pointer_), shared_);
      break;
    }
    case 2: {
      // Registered memory of both kinds: what an engine holds cannot be taken from under it.
      auto memory = make_record<orbite_nixl_memory_t>();
      memory.address = reinterpret_cast<std::uint64_t>(world().pages.start);
      memory.length = 1 + input_.take<std::uint16_t>();
      memory.access = ORBITE_NIXL_ACCESS_ALL;
      took(orbite_nixl_memory_register(world().engine, &memory, &handle_, error_pointer_),
           registrations_);
      break;
    }
    default:
      checked(orbite_nixl_shared_free(handle(shared_), error_pointer_));
      break;
  }
}

void Calls::make_peer() {
  const orbite_nixl_engine_t owner = engine();
  if (input_.take<std::uint8_t>() >= 0x80) {
    took(orbite_nixl_peer_self(owner, &handle_, error_pointer_), peers_);
    return;
  }
  const auto name = input_.take_bytes(300);
  const auto bytes = blob(world().connection);
  took(orbite_nixl_peer_import(owner, reinterpret_cast<const char*>(name.data()), name.size(),
                               bytes.data(), bytes.size(), &handle_, error_pointer_),
       peers_);
}

void Calls::use_peer() {
  const orbite_nixl_engine_t owner = engine();
  const std::uint64_t peer = handle(peers_);
  switch (input_.take<std::uint8_t>() % 3) {
    case 0:
      checked(
          orbite_nixl_peer_connect(owner, peer, 1 + input_.take<std::uint16_t>(), error_pointer_));
      break;
    case 1:
      checked(orbite_nixl_peer_retire(owner, peer, error_pointer_));
      break;
    default:
      checked(orbite_nixl_peer_confirm_fenced(owner, peer, error_pointer_));
      break;
  }
}

void Calls::make_range() {
  const orbite_nixl_engine_t owner = engine();
  switch (input_.take<std::uint8_t>() % 3) {
    case 0:
      took(orbite_nixl_range_local(owner, handle(registrations_), &handle_, error_pointer_),
           ranges_);
      break;
    case 1: {
      const std::uint64_t peer = handle(peers_);
      const auto bytes = blob(memory_blob());
      const auto [address, length] = range();
      took(orbite_nixl_range_import(owner, peer, bytes.data(), bytes.size(), address, length,
                                    &handle_, error_pointer_),
           ranges_);
      break;
    }
    default:
      checked(orbite_nixl_range_release(owner, handle(ranges_), error_pointer_));
      break;
  }
}

void Calls::prepare() {
  const std::size_t count = input_.take<std::uint8_t>() % kListMax;
  // Not a vector: an empty list is not a null one.
  const auto local = std::make_unique<orbite_nixl_descriptor_t[]>(count);
  const auto remote = std::make_unique<orbite_nixl_descriptor_t[]>(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::tie(local[i].address, local[i].length) = range();
    std::tie(remote[i].address, remote[i].length) = range();
    if (input_.take<std::uint8_t>() < 0xF0) {
      remote[i].length = std::min(local[i].length, remote[i].length);
      local[i].length = remote[i].length;
    }
    local[i].owner = handle(registrations_);
    remote[i].owner = handle(ranges_);
  }
  auto record = make_record<orbite_nixl_prepare_t>();
  bend(record.record);
  record.peer = handle(peers_);
  record.local = local.get();
  record.remote = remote.get();
  record.count = count;
  const auto choice = input_.take<std::uint8_t>();
  record.operation = choice >= 0xF8 ? input_.take<std::uint32_t>() : choice % 2;
  record.reserved = choice >= 0xF0 ? input_.take<std::uint32_t>() : 0;
  if (choice >= 0xE0 && choice < 0xF0) {
    // More than the limit: refused before the lists are looked at.
    record.count = 1025 + (input_.take<std::uint64_t>() >> (choice % 64));
  }
  const orbite_nixl_engine_t owner = engine();
  took(orbite_nixl_request_prepare(owner, &record, &handle_, error_pointer_), requests_);
}

void Calls::use_request() {
  auto result = make_record<orbite_nixl_result_t>();
  bend(result.record);
  const orbite_nixl_engine_t owner = engine();
  const std::uint64_t request = handle(requests_);
  const auto choice = input_.take<std::uint8_t>();
  switch (choice % 6) {
    case 0: {
      auto post = make_record<orbite_nixl_post_t>();
      bend(post.record);
      const auto message = input_.take_bytes(8192);
      post.notification = choice >= 0x80 ? bytes_of(message) : nullptr;
      post.notification_bytes = choice >= 0x40 ? message.size() : 0;
      post.timeout_ns = input_.take<std::uint32_t>();
      checked(orbite_nixl_request_post(owner, request, choice >= 0x20 ? &post : nullptr, &result,
                                       error_pointer_));
      break;
    }
    case 1:
      checked(orbite_nixl_request_check(owner, request, &result, error_pointer_));
      break;
    case 2:
      checked(orbite_nixl_request_query(owner, request, &result, error_pointer_));
      break;
    case 3:
      checked(orbite_nixl_request_cancel(owner, request, error_pointer_));
      break;
    case 4:
      checked(orbite_nixl_request_release(owner, request, error_pointer_));
      break;
    default:
      checked(orbite_nixl_request_abandon(owner, request, error_pointer_));
      break;
  }
  REQUIRE(result.terminal == 0 || result.drain == ORBITE_NIXL_DRAIN_RETIRED);
  REQUIRE(result.bytes_prefix <= result.bytes_total);
  REQUIRE(std::memchr(result.route, 0, sizeof(result.route)) != nullptr);
}

void Calls::notify() {
  const orbite_nixl_engine_t owner = engine();
  if (input_.take<std::uint8_t>() >= 0x80) {
    const auto message = input_.take_bytes(8192);
    checked(orbite_nixl_notification_send(owner, handle(peers_), message.data(), message.size(),
                                          error_pointer_));
    return;
  }
  std::vector<char> name(input_.take<std::uint16_t>() % 300);
  std::vector<std::uint8_t> message(input_.take<std::uint16_t>() % 5000);
  std::size_t name_bytes = name.size();
  std::size_t message_bytes = message.size();
  const orbite_nixl_status_t status = orbite_nixl_notification_receive(
      owner, name.data(), &name_bytes, message.data(), &message_bytes, error_pointer_);
  checked(status);
  if (status == ORBITE_NIXL_OK) {
    REQUIRE(name_bytes <= name.size() && message_bytes <= message.size());
  } else if (status == ORBITE_NIXL_ERR_BUFFER_TOO_SMALL) {
    REQUIRE(name_bytes > name.size() || message_bytes > message.size());
  } else {
    REQUIRE(name_bytes == name.size() && message_bytes == message.size());
  }
}

void Calls::look_around() {
  std::vector<char> buffer(input_.take<std::uint16_t>());
  std::size_t bytes = buffer.size();
  const orbite_nixl_engine_t owner = engine();
  const orbite_nixl_status_t status =
      orbite_nixl_engine_info(owner, buffer.data(), &bytes, error_pointer_);
  checked(status);
  REQUIRE(status != ORBITE_NIXL_OK || bytes <= buffer.size());
  const int length = orbite_nixl_process_routes(buffer.data(), buffer.size());
  REQUIRE(length < 0 || static_cast<std::size_t>(length) < buffer.size());
  look_at_telemetry(owner);
  auto abi = make_record<orbite_nixl_abi_t>();
  bend(abi.record);
  checked_alone(orbite_nixl_abi_query(&abi, nullptr));
}

// Blocks of exactly as many records as the call is told of.
void Calls::look_at_telemetry(orbite_nixl_engine_t owner) {
  auto telemetry = make_record<orbite_nixl_telemetry_t>();
  bend(telemetry.record);
  std::vector<orbite_nixl_route_t> routes(input_.take<std::uint8_t>() % 16,
                                          make_record<orbite_nixl_route_t>());
  std::vector<orbite_nixl_budget_t> budgets(input_.take<std::uint8_t>() % 16,
                                            make_record<orbite_nixl_budget_t>());
  if (!routes.empty()) {
    bend(routes.back().record);
  }
  if (!budgets.empty()) {
    bend(budgets.back().record);
  }
  std::size_t route_count = routes.size();
  std::size_t budget_count = budgets.size();
  const orbite_nixl_status_t status =
      orbite_nixl_telemetry_read(owner, &telemetry, routes.data(), &route_count, budgets.data(),
                                 &budget_count, error_pointer_);
  checked(status);
  if (status == ORBITE_NIXL_OK) {
    REQUIRE(route_count <= routes.size() && budget_count <= budgets.size());
  }
  for (const orbite_nixl_route_t& route : routes) {
    REQUIRE(route.failure_count <= ORBITE_NIXL_FAILURES_MAX);
  }
  std::vector<char> text(2 * std::size_t{input_.take<std::uint16_t>()});
  std::size_t bytes = text.size();
  const orbite_nixl_status_t printed =
      orbite_nixl_telemetry_text(owner, text.data(), &bytes, error_pointer_);
  checked(printed);
  REQUIRE(printed != ORBITE_NIXL_OK || bytes <= text.size());
}

// The engine of the next input has no objects of this one.
void Calls::clean_up() {
  const orbite_nixl_engine_t owner = world().engine;
  for (const std::uint64_t request : requests_) {
    checked_alone(orbite_nixl_request_abandon(owner, request, nullptr));
  }
  for (const std::uint64_t range : ranges_) {
    checked_alone(orbite_nixl_range_release(owner, range, nullptr));
  }
  for (const std::uint64_t peer : peers_) {
    checked_alone(orbite_nixl_peer_retire(owner, peer, nullptr));
  }
  for (const std::uint64_t registration : registrations_) {
    checked_alone(orbite_nixl_memory_deregister(owner, registration, nullptr, nullptr));
  }
  for (const std::uint64_t shared : shared_) {
    checked_alone(orbite_nixl_shared_free(shared, nullptr));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Calls(Input(data, size)).run();
  return 0;
}
