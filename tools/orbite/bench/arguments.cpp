// SPDX-License-Identifier: Apache-2.0
#include "bench/arguments.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace orbite::tool::bench {
namespace {

constexpr const char* kFooter =
    "The control connection of --serve and --connect is neither authenticated nor encrypted:\n"
    "whoever reaches the port can make the server use its memory and its network, and learns the\n"
    "secret of an engine that holds nothing but test data. Use it on networks that you trust.\n"
    "\n"
    "Examples:\n"
    "  orbite bench                                    two processes of this host\n"
    "  orbite bench --transport tcp                    the same over TCP loopback\n"
    "  orbite bench --transport shm --threads 2        through memory that both can map\n"
    "  orbite bench --shape 4K --op write --seconds 5  latency of one block\n"
    "  orbite bench --size 256K --count 256 --adjacent 50 --depth 4 --json\n"
    "  orbite bench --self --shape kv                  copies within one process\n"
    "  orbite bench --serve 10.0.0.1:18570             on one host, and on another\n"
    "  orbite bench --connect 10.0.0.1:18570 --shape 64M\n";

std::string shape_help() {
  std::string text = "A named shape of requests, default 1024x64K. --size and --count change it:";
  for (const Shape& shape : shapes()) {
    text += "\n  " + std::string(shape.name) + ": " + std::string(shape.meaning);
  }
  return text;
}

/// The option --serve.
CLI::Option* add_roles(CLI::App& command, Arguments& arguments) {
  CLI::Option* self =
      command.add_flag("--self", arguments.self, "Measure an engine with itself, in one process");
  CLI::Option* connect =
      command.add_option("--connect", arguments.connect, "Measure with the server at this address")
          ->type_name("HOST:PORT")
          ->excludes(self);
  CLI::Option* serve =
      command
          .add_option(
              "--serve", arguments.serve,
              "Be the other side of --connect, for one client after the other; listens on " +
                  std::string(kServeDefault) + " unless another is given; port 0 is any")
          ->type_name("[ADDRESS:PORT]")
          ->expected(0, 1)
          ->excludes(self)
          ->excludes(connect);
  command.add_option("--clients", arguments.clients, "Serve that many clients, then end")
      ->check(CLI::Range(std::uint64_t{1}, kIterationsMax))
      ->needs(serve);
  command.add_option("--on-descriptor", arguments.served_descriptor)->group("");
  return serve;
}

void add_work(CLI::App& command, Arguments& arguments) {
  command
      .add_option(
          "--transport", arguments.transport,
          "Which way the bytes go; any other is an error, with its reason:\n"
          "  auto: whichever the engines choose\n"
          "  shm: shared allocations at both sides; two processes of this host\n"
          "  cma: ordinary memory, copied by the kernel; two processes of this host\n"
          "  tcp: also to another host\n"
          "--self takes auto alone, --connect auto and tcp, --serve none: its client decides")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--op", arguments.op, "read, write or both")->capture_default_str();
  command.add_option("--shape", arguments.shape, shape_help())->type_name("NAME");
  command.add_option("--size", arguments.size, "Bytes of a block, as 4096, 64K, 1M")
      ->type_name("SIZE");
  command
      .add_option("--count", arguments.count, "Blocks of a request; of kv: of each layer's K and V")
      ->check(CLI::Range(std::uint64_t{1}, kBlocksMax));
  command
      .add_option("--adjacent", arguments.adjacent,
                  "Percent of the blocks that follow one directly, without a gap")
      ->check(CLI::Range(std::uint32_t{0}, std::uint32_t{100}))
      ->capture_default_str();
  command.add_option("--threads", arguments.threads, "Threads that post requests")
      ->check(CLI::Range(std::uint32_t{1}, kThreadsMax))
      ->capture_default_str();
  command.add_option("--depth", arguments.depth, "Requests of each thread that are under way")
      ->check(CLI::Range(std::uint32_t{1}, kDepthMax))
      ->capture_default_str();
  CLI::Option* seconds =
      command
          .add_option("--seconds", arguments.seconds,
                      "Time of transfers for each operation; what they are compared with, and the "
                      "verification, come on top")
          ->check(CLI::Range(kSecondsMin, kSecondsMax))
          ->capture_default_str();
  command.add_option("--iterations", arguments.iterations, "That many transfers instead")
      ->check(CLI::Range(std::uint64_t{1}, kIterationsMax))
      ->excludes(seconds);
}

}  // namespace

CLI::App* add_command(CLI::App& app, Arguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "bench",
      "Measure the engine without NIXL: WRITE and READ between two processes of this host, "
      "between two hosts, or of an engine with itself; exits with 1 when bytes are wrong");
  CLI::Option* serve = add_roles(*command, arguments);
  command
      ->add_option("--memory", arguments.memory,
                   "The most memory that either side takes for blocks; with --serve, that a client "
                   "may ask for")
      ->type_name("SIZE")
      ->capture_default_str();
  command->add_option("--config", arguments.config_file, "Configuration of the engines")
      ->type_name("FILE");
  const std::vector<const CLI::Option*> of_both_sides = std::as_const(*command).get_options();
  add_work(*command, arguments);
  command
      ->add_flag("--verify,!--no-verify", arguments.verify,
                 "Compare every byte and guard, outside of the timed part (default)")
      ->default_str("");
  command->add_flag("--json", arguments.json, "Write JSON");
  command->parse_complete_callback([command, serve, of_both_sides, &arguments] {
    arguments.serves = serve->count() > 0;
    // What the initiator decides is refused at the server, not ignored.
    for (const CLI::Option* option : command->get_options()) {
      const bool common =
          std::find(of_both_sides.begin(), of_both_sides.end(), option) != of_both_sides.end();
      if (arguments.serves && !common && option->count() > 0) {
        throw CLI::ExcludesError("--serve", option->get_name());
      }
    }
  });
  command->footer(kFooter);
  return command;
}

}  // namespace orbite::tool::bench
