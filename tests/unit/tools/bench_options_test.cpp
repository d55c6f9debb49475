// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>

#include "tools/orbite/bench/arguments.hpp"
#include "tools/orbite/bench/endpoint.hpp"
#include "tools/orbite/bench/measure.hpp"

namespace orbite::tool::bench {
namespace {

Result<Options> parse(const std::string& line) {
  Arguments arguments;
  CLI::App app;
  add_command(app, arguments);
  try {
    app.parse("bench " + line, false);
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument, "%s", error.what());
  }
  return parse_options(arguments);
}

std::string refused(const std::string& line) {
  const Result<Options> options = parse(line);
  return options ? "accepted" : std::string(options.error().context());
}

TEST(BenchOptions, WithoutAnyTwoProcessesMoveTheDefaultShapeBothWays) {
  const Result<Options> options = parse("");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->role, Role::kPair);
  EXPECT_EQ(options->operations, (std::vector{Operation::kWrite, Operation::kRead}));
  EXPECT_EQ(options->layout, *find_shape("1024x64K"));
  EXPECT_EQ(options->slots(), 1U);
  EXPECT_TRUE(options->verify);
  EXPECT_FALSE(options->json);
}

TEST(BenchOptions, SizeAndCountChangeAShape) {
  EXPECT_EQ(parse("--shape 4096x4K --size 8K")->layout.payload(), 4096U * 8192);
  EXPECT_EQ(parse("--shape 4096x4K --count 3")->layout.payload(), 3U * 4096);
  const Layout cache = parse("--shape kv --size 16K --count 4")->layout;
  EXPECT_EQ(cache.payload(), 60U * 2 * 4 * (16U << 10));
  EXPECT_EQ(cache.gap, 16U << 10);
}

TEST(BenchOptions, SizeAndCountAloneAreThatManyBlocks) {
  EXPECT_EQ(parse("--size 4K")->layout.payload(), 4096U);
  EXPECT_EQ(parse("--count 5")->layout.payload(), 5U * (64U << 10));
}

TEST(BenchOptions, RolesExcludeOneAnother) {
  EXPECT_EQ(parse("--self")->role, Role::kSelf);
  EXPECT_EQ(parse("--connect host.example:7")->role, Role::kConnect);
  EXPECT_EQ(parse("--on-descriptor 3")->role, Role::kServed);
  EXPECT_NE(refused("--self --serve").find("excludes"), std::string::npos);
  EXPECT_NE(refused("--serve --connect a:1").find("excludes"), std::string::npos);
  EXPECT_NE(refused("--clients 2").find("requires --serve"), std::string::npos);
}

TEST(BenchOptions, TransportsAreThoseThatTheOtherSideCanHave) {
  EXPECT_EQ(parse("")->transport, Transport::kAuto);
  EXPECT_EQ(parse("--transport shm")->transport, Transport::kShm);
  EXPECT_EQ(parse("--transport cma")->transport, Transport::kCma);
  EXPECT_EQ(parse("--on-descriptor 3 --transport cma")->transport, Transport::kCma);
  EXPECT_EQ(parse("--connect a:1 --transport tcp")->transport, Transport::kTcp);
  EXPECT_EQ(parse("--self --transport auto")->transport, Transport::kAuto);
  EXPECT_EQ(refused("--transport TCP"), "--transport: 'TCP' is none of auto, shm, cma, tcp");
  for (const std::string transport : {"shm", "cma"}) {
    EXPECT_NE(refused("--connect a:1 --transport " + transport).find("which allows auto and tcp"),
              std::string::npos);
  }
  for (const std::string transport : {"shm", "cma", "tcp"}) {
    EXPECT_NE(refused("--self --transport " + transport).find("none for --self"),
              std::string::npos);
  }
}

TEST(BenchOptions, ATransportIsTheOnlyWayBesideTcp) {
  Config off;
  off.tcp.enabled = false;
  off.shm.enabled = false;
  off.transfer.routes = {"local"};
  EXPECT_EQ(by_transport(off, Transport::kAuto), off);
  for (const Transport transport : {Transport::kShm, Transport::kCma, Transport::kTcp}) {
    const Config config = by_transport(off, transport);
    EXPECT_EQ(config.shm.enabled, transport == Transport::kShm);
    EXPECT_EQ(config.cma.enabled, transport == Transport::kCma);
    EXPECT_TRUE(config.tcp.enabled);
    EXPECT_EQ(config.transfer.routes, Config().transfer.routes);
    EXPECT_EQ(pages_for(transport),
              transport == Transport::kShm ? Pages::kShared : Pages::kOrdinary);
  }
}

TEST(BenchOptions, ServeHasADefaultAddress) {
  const Result<Options> options = parse("--serve --clients 2");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->role, Role::kServe);
  EXPECT_EQ(options->at.host, "0.0.0.0");
  EXPECT_EQ(options->at.port, 18570);
  EXPECT_EQ(options->clients, 2U);
  EXPECT_EQ(parse("--serve [::1]:0")->at.host, "::1");
}

TEST(BenchOptions, WhatTheInitiatorDecidesIsRefusedAtTheServer) {
  for (const std::string option :
       {"--op read", "--shape 4K", "--size 4K", "--count 1", "--adjacent 5", "--threads 2",
        "--depth 2", "--transport tcp", "--seconds 1", "--iterations 5", "--verify", "--no-verify",
        "--json"}) {
    EXPECT_NE(refused("--serve 127.0.0.1:0 " + option).find("--serve excludes --"),
              std::string::npos)
        << option;
  }
}

TEST(BenchOptions, RequestsThatNeedMoreThanTheMemoryAreRefused) {
  EXPECT_EQ(refused("--size 1M --memory 1M"),
            "1 requests of 1052672 bytes of memory each; --memory allows 1048576 bytes");
  EXPECT_EQ(refused("--size 1M --memory 2M"), "accepted");
  EXPECT_NE(refused("--size 1M --memory 2M --depth 2"), "accepted");
}

TEST(BenchOptions, WrongValuesAreRefused) {
  for (const std::string line :
       {"--threads 0", "--threads 65", "--depth 0", "--depth 1025", "--adjacent 101", "--count 0",
        "--seconds 0", "--seconds 3601", "--seconds nan", "--iterations 0", "--op up", "--shape x",
        "--size 0", "--memory 2T", "--connect host", "--connect host:0", "--serve ::1:5",
        "--seconds 1 --iterations 1", "--count 99999999"}) {
    EXPECT_NE(refused(line), "accepted") << line;
  }
}

TEST(BenchOptions, SizesHaveUnitsOf1024) {
  EXPECT_EQ(parse_size("4096").value(), 4096U);
  EXPECT_EQ(parse_size("64K").value(), 64U << 10);
  EXPECT_EQ(parse_size("64KiB").value(), 64U << 10);
  EXPECT_EQ(parse_size("3M").value(), 3U << 20);
  EXPECT_EQ(parse_size("2GiB").value(), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_size("1T").value(), std::uint64_t{1} << 40);
  for (const char* text : {"", "0", "K", "-1", "+1", "1.5K", "4k", "4 K", "4KB", "4iB", "2T",
                           "18446744073709551616", "16777217G", "0x10"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
}

TEST(BenchOptions, HostsAndPortsAreTakenApart) {
  EXPECT_EQ(parse_host_port("[2001:db8::1]:80")->host, "2001:db8::1");
  EXPECT_EQ(parse_host_port("host.example:65535")->port, 65535);
  for (const char* text : {"", ":", ":80", "host", "host:", "host:65536", "host:-1", "host:8o",
                           "::1:80", "[]:80", "[::1]", "[::1:80", "::1]:80"}) {
    EXPECT_FALSE(parse_host_port(text)) << text;
  }
}

TEST(BenchOptions, RoundsAddUpToWhatIsAsked) {
  Options options;
  options.seconds = 2;
  EXPECT_EQ(plan_rounds(options).rounds, 5U);
  EXPECT_EQ(plan_rounds(options).budget(4).duration_ns, 400'000'000U);
  options.seconds = 3'600;
  EXPECT_EQ(plan_rounds(options).rounds, 360U);
  for (const std::uint64_t iterations : {1U, 4U, 5U, 13U}) {
    options.iterations = iterations;
    const Plan plan = plan_rounds(options);
    std::uint64_t sum = 0;
    for (std::uint32_t round = 0; round < plan.rounds; ++round) {
      EXPECT_GT(plan.budget(round).transfers, 0U);
      sum += plan.budget(round).transfers;
    }
    EXPECT_EQ(sum, iterations);
  }
}

}  // namespace
}  // namespace orbite::tool::bench
