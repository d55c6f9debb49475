// SPDX-License-Identifier: Apache-2.0
// Two engines of one host as far as their links go.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "base/waiter.hpp"
#include "memory/registry.hpp"
#include "peer/borrow_link.hpp"
#include "peer/lender.hpp"
#include "platform/system.hpp"
#include "platform/system_neighbors.hpp"

namespace orbite::peer::test {

using platform::IoResult;
using platform::Neighbors;

inline constexpr base::Nanoseconds kTimeout = 5 * base::kSecond;
inline constexpr std::uint64_t kHandshakesMax = 4;
inline constexpr std::uint64_t kRegistrationsMax = 64;
inline constexpr std::uint64_t kBorrowersMax = 256;

/// The system's, which may have no descriptor for the files of one message, or none of anything.
class ShortOfDescriptors final : public Neighbors {
 public:
  using Socket = platform::Socket;

  bool loses_next = false;
  int fails_with = 0;  ///< every receive, while what waits stays where it is
  int receives = 0;
  std::function<void()> at_each_step;  ///< before and after what may change who waits for what
  std::function<void()> at_each_map;   ///< may fail it
  std::function<void()> at_each_send;

  Result<Socket> listen(std::string_view name) override { return system_.listen(name); }
  Result<Socket> accept(Socket listener) override { return system_.accept(listener); }
  Result<Socket> connect(std::string_view name) override { return system_.connect(name); }
  Result<std::unique_ptr<platform::Process>> process_of(Socket socket) override {
    step();
    return system_.process_of(socket);
  }
  IoResult send(Socket socket, std::span<const std::uint8_t> message, const Files& files) override {
    if (at_each_send) {
      at_each_send();
    }
    return system_.send(socket, message, files);
  }
  IoResult receive(Socket socket, std::span<std::uint8_t> buffer, Files& files) override {
    ++receives;
    step();
    if (fails_with != 0) {
      files.clear();
      return {IoResult::Kind::kFailed, 0, fails_with};
    }
    const IoResult got = system_.receive(socket, buffer, files);
    if (got.kind != IoResult::Kind::kBytes || files.empty() || !std::exchange(loses_next, false)) {
      return got;
    }
    files.clear();
    return {IoResult::Kind::kFailed, 0, EMFILE};
  }
  Result<std::shared_ptr<const platform::PageFile>> make_pages(std::string_view name,
                                                               std::uint64_t bytes,
                                                               PageOptions options) override {
    return system_.make_pages(name, bytes, options);
  }
  Result<std::unique_ptr<platform::PageMapping>> map(const platform::PageFile& file,
                                                     PageAccess access,
                                                     AfterFork after_fork) override {
    step();
    if (at_each_map) {
      at_each_map();
    }
    auto mapped = system_.map(file, access, after_fork);
    step();
    return mapped;
  }
  Result<void> forbid_writes(const platform::PageFile& file) override {
    return system_.forbid_writes(file);
  }

 private:
  void step() {
    if (at_each_step) {
      at_each_step();
    }
  }

  platform::SystemNeighbors system_;
};

/// Who waits does everybody's turns meanwhile; one that they do not end is over by that.
class TurningWaiter final : public base::Waiter {
 public:
  std::function<void()> turn;
  int ran_out = 0;

  bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& /*changed*/,
                base::Nanoseconds /*timeout_ns*/, const std::function<bool()>& ready) override {
    constexpr int kTurnsMax = 200;
    for (int i = 0; i < kTurnsMax; ++i) {
      if (ready()) {
        return true;
      }
      lock.unlock();
      turn();
      lock.lock();
    }
    ++ran_out;
    return false;
  }
};

/// What all ends of a test have in common.
struct Host {
  platform::SystemNetwork network;
  ShortOfDescriptors neighbors;
  base::ManualClock clock;
  base::SeededRandom random{1};
  TurningWaiter waiter;
};

/// An engine as far as its links go. One thread is its worker and its caller.
class Node {
  Host& host_;  // goes last: what is below uses it
  platform::Socket poller_;

 public:
  Node(Host& host, const std::string& name)
      : host_(host), poller_(host.network.make_poller().value()) {
    // Its name is known to every process of this host.
    platform::SystemRandom().fill(blob.epoch.bytes);
    host.random.fill(blob.secret);
    blob.host.network_namespace = 7;
    LinkEnvironment environment{host.network,
                                host.neighbors,
                                host.clock,
                                host.random,
                                host.waiter,
                                name,
                                blob.epoch,
                                blob.secret,
                                blob.host,
                                poller_,
                                kTimeout,
                                kHandshakesMax,
                                kBorrowersMax,
                                kRegistrationsMax,
                                [this](const wire::RegistrationRef& asked) { return share(asked); },
                                [] {}};
    lender = Lender::create(environment).value();
    links = std::make_unique<BorrowLinks>(std::move(environment));
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() {
    links.reset();
    lender.reset();
    host_.network.close(poller_);
  }

  /// Whatever its worker has to do now.
  void turn() {
    std::array<platform::PollEvent, 16> events;
    const std::size_t count = host_.network.poller_wait(poller_, events, 0);
    events_seen += static_cast<int>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t kind = events[i].token & kTokenKinds;
      if (kind == kTokenLink || kind == kTokenLinkProcess) {
        links->on_event(events[i].token);
      } else {
        lender->on_event(events[i].token);
      }
    }
    static_cast<void>(lender->on_tick(host_.clock.now_ns()));
    static_cast<void>(links->on_tick(host_.clock.now_ns()));
  }

  Handle add() {
    MemoryDescriptor memory;
    memory.address = reinterpret_cast<std::uint64_t>(bytes.data());
    memory.length = bytes.size();
    const Handle handle = registry.add(memory).value();
    EXPECT_TRUE(lender->reserve().has_value());
    lender->open(handle);
    return handle;
  }
  RegistrationState deregister(Handle handle) {
    const auto registration = registry.find(handle).value();
    lender->close(
        registry.borrow(registration, memory::Direction::kRead, memory::Borrower::kLocal).value());
    return registry.deregister(handle).value();
  }

  int events_seen = 0;
  wire::ConnectionBlob blob;
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(4096);
  memory::Registry registry{{.registrations_max = kRegistrationsMax}, host_.random};
  std::function<Result<SharedRange>(const wire::RegistrationRef&)> share =
      [](const wire::RegistrationRef&) -> Result<SharedRange> {
    return fail(ErrorCode::kUnsupported, "ordinary memory");
  };
  std::unique_ptr<Lender> lender;
  std::unique_ptr<BorrowLinks> links;
};

class Links : public ::testing::Test {
 protected:
  Links() {
    host_.waiter.turn = [this] {
      owner_.turn();
      borrower_.turn();
    };
  }
  /// Turns of both until it is so; local sockets need few.
  template <typename Condition>
  bool until(Condition condition) {
    for (int i = 0; i < 1'000; ++i) {
      if (condition()) {
        return true;
      }
      owner_.turn();
      borrower_.turn();
    }
    return false;
  }
  std::shared_ptr<BorrowLink> connect() {
    auto link = borrower_.links->want(owner_.blob).value();
    EXPECT_TRUE(until([&] { return link->ready(); }));
    return link;
  }
  /// As the owner describes a registration.
  [[nodiscard]] std::shared_ptr<RemoteRange> range_of(std::uint32_t index) const {
    wire::RangeBlob blob;
    blob.index = index;
    blob.generation = 1;
    blob.address = 0x10000;
    blob.length = 1024;
    return std::make_shared<RemoteRange>(std::make_shared<Peer>("owner", owner_.blob, false), blob,
                                         base::ByteRange::make(blob.address, blob.length).value());
  }

  Host host_;
  Node owner_{host_, "owner"};
  Node borrower_{host_, "borrower"};
};

}  // namespace orbite::peer::test
