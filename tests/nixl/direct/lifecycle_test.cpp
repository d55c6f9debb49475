// SPDX-License-Identifier: Apache-2.0
// Loading, parameters, creation and destruction. Control N10 and the surprises 0.7, 0.9 and 0.13 of
// the agent.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

#include "nixl/direct/bridge_seam.hpp"
#include "nixl/direct/plugin.hpp"

namespace orbite::test {
namespace {

orbite_nixl_status_t refuse(orbite_nixl_error_t* error, orbite_nixl_status_t status) {
  if (error != nullptr) {
    error->status = status;
    error->message[0] = '\0';
  }
  return status;
}

bool init_fails(const nixl_b_params_t& params) {
  const EnginePtr engine = create_engine("refused", params);
  return engine == nullptr || engine->getInitErr();
}

TEST(PluginTable, NamesVersionsOptionsAndMemoryTypes) {
  EXPECT_EQ(plugin().api_version, 1);
  EXPECT_STREQ(plugin().get_plugin_name(), "ORBITE");
  EXPECT_STRNE(plugin().get_plugin_version(), "");
  EXPECT_EQ(plugin().get_backend_mems(), nixl_mem_list_t{DRAM_SEG});
  EXPECT_EQ(plugin().get_backend_options(), (nixl_b_params_t{{"config", ""}}));
}

TEST(PluginTable, CapabilitiesAreThoseOfTheContract) {
  Node node("capable");
  EXPECT_TRUE(node->supportsRemote());
  EXPECT_TRUE(node->supportsLocal());
  EXPECT_TRUE(node->supportsNotif());
  EXPECT_EQ(node->getSupportedMems(), nixl_mem_list_t{DRAM_SEG});
  EXPECT_EQ(node->getType(), "ORBITE");
}

// 0.7: NIXL loads, asks and unloads a plugin around engines that are in use.
TEST(PluginTable, RepeatedInitAndFiniLeaveEnginesAlone) {
  Node node("steady");
  Region region(node, 4096, 1);
  void* const library = dlopen(ORBITE_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto init = reinterpret_cast<nixlBackendPlugin* (*)()>(dlsym(library, "nixl_plugin_init"));
  const auto fini = reinterpret_cast<void (*)()>(dlsym(library, "nixl_plugin_fini"));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(init(), &plugin());
    EXPECT_EQ(plugin().get_backend_options().size(), 1U);
    fini();
  }
  dlclose(library);
  Request request = prepared(node, NIXL_WRITE, list_of({region.part(0, 100, region.local())}),
                             list_of({region.part(2048, 100, region.self())}), "steady");
  EXPECT_EQ(run(node, request), NIXL_SUCCESS);
  EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
  Node later("later");
  EXPECT_FALSE(later.conn_info().empty());
}

// 0.13: keys that NIXL's consumers add, and every key that the plugin offers with its default.
TEST(Parameters, KeysOfConsumersAreAcceptedWithoutEffect) {
  for (const char* key : {"active", "engine_config", "num_threads", "file_path", "file_size",
                          "shard_dirs", "use_direct_io", "max_capacity_gb"}) {
    for (const char* value : {"", "true", "8"}) {
      EXPECT_FALSE(init_fails({{key, value}})) << key << "=" << value;
    }
  }
  EXPECT_FALSE(init_fails(plugin().get_backend_options()));
}

TEST(Parameters, UnknownKeyIsRefusedByNameBeforeAnyEngineExists) {
  const CreateSeam::Counter created;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(init_fails({{"config", test_config()}, {"tcp_port", "1"}}));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("'tcp_port'"), std::string::npos) << log;
  EXPECT_NE(log.find("'config'"), std::string::npos) << log;
  EXPECT_EQ(CreateSeam::calls(), 0);
}

TEST(Parameters, WrongConfigIsRefusedWithThePathOfTheKey) {
  const struct {
    const char* config;
    const char* named;
  } cases[] = {{R"({"tcp": {"nonsense": 1}})", "nonsense"},
               {R"({"tcp": {"slice_bytes": "big"}})", "slice_bytes"},
               {R"({"tcp": {"slice_bytes": 1}})", "slice_bytes"},
               {R"({"tcp": {"enabled": true, "enabled": true}})", "enabled"},
               {"not json", "line 1"},
               {"[]", ""}};
  for (const auto& [config, named] : cases) {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(init_fails({{"config", config}})) << config;
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find(named), std::string::npos) << log;
    EXPECT_NE(log.find("refused"), std::string::npos) << "names the agent: " << log;
  }
}

TEST(N10Loader, NoParametersIsNoEngine) {
  EXPECT_EQ(plugin().create_engine(nullptr), nullptr);
  nixlBackendInitParams init;
  init.localAgent = "none";
  EXPECT_EQ(plugin().create_engine(&init), nullptr);
}

TEST(N10Loader, OtherMajorOrOlderMinorOfTheAbiIsRefusedBeforeAnyEngineExists) {
  const std::pair<int, int> versions[] = {{ORBITE_NIXL_ABI_MAJOR + 1, ORBITE_NIXL_ABI_MINOR},
                                          {ORBITE_NIXL_ABI_MAJOR, ORBITE_NIXL_ABI_MINOR - 1}};
  for (const auto& [major, minor] : versions) {
    const CreateSeam::Counter created;
    const AbiQuerySeam::Guard other([&](orbite_nixl_abi_t* abi, orbite_nixl_error_t*) {
      abi->abi_major = static_cast<uint16_t>(major);
      abi->abi_minor = static_cast<uint16_t>(minor);
      return ORBITE_NIXL_OK;
    });
    testing::internal::CaptureStderr();
    EXPECT_TRUE(init_fails({}));
    const std::string log = testing::internal::GetCapturedStderr();
    const std::string named = std::to_string(major) + "." + std::to_string(minor);
    EXPECT_NE(log.find("has ABI " + named), std::string::npos) << log;
    EXPECT_EQ(CreateSeam::calls(), 0);
  }
}

TEST(N10Loader, LaterMinorOfTheAbiIsAccepted) {
  const AbiQuerySeam::Guard later([](orbite_nixl_abi_t* abi, orbite_nixl_error_t* error) {
    const orbite_nixl_status_t status = AbiQuerySeam::real(abi, error);
    abi->abi_minor += 1;
    return status;
  });
  EXPECT_FALSE(init_fails({}));
}

TEST(N10Loader, BridgeWithoutTcpIsRefusedBeforeAnyEngineExists) {
  const CreateSeam::Counter created;
  const AbiQuerySeam::Guard poor([](orbite_nixl_abi_t* abi, orbite_nixl_error_t* error) {
    const orbite_nixl_status_t status = AbiQuerySeam::real(abi, error);
    abi->features &= ~ORBITE_NIXL_FEATURE_TCP;
    return status;
  });
  testing::internal::CaptureStderr();
  EXPECT_TRUE(init_fails({}));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("TCP"), std::string::npos) << log;
  EXPECT_EQ(CreateSeam::calls(), 0);
}

TEST(N10Loader, RecordOfUnknownSizeIsRefusedBeforeAnyEngineExists) {
  const CreateSeam::Counter created;
  // The library itself judges a record of another size.
  const AbiQuerySeam::Guard grown([](orbite_nixl_abi_t* abi, orbite_nixl_error_t* error) {
    abi->record.size += 8;
    return AbiQuerySeam::real(abi, error);
  });
  testing::internal::CaptureStderr();
  EXPECT_TRUE(init_fails({}));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("ABI"), std::string::npos) << log;
  EXPECT_EQ(CreateSeam::calls(), 0);
}

TEST(N10Factory, RefusedEngineLeavesNothingBehind) {
  const EngineReleaseSeam::Counter released;
  const CreateSeam::Guard refused(
      [](const orbite_nixl_engine_options_t*, orbite_nixl_engine_t*, orbite_nixl_error_t* error) {
        return refuse(error, ORBITE_NIXL_ERR_ADDRESS_IN_USE);
      });
  EXPECT_TRUE(init_fails({}));
  EXPECT_EQ(EngineReleaseSeam::calls(), 0);
}

TEST(N10Factory, NoExceptionLeavesTheFactory) {
  const CreateSeam::Guard throwing(
      [](const orbite_nixl_engine_options_t*, orbite_nixl_engine_t*,
         orbite_nixl_error_t*) -> orbite_nixl_status_t { throw std::bad_alloc(); });
  EXPECT_TRUE(init_fails({}));
}

TEST(N10Factory, NoExceptionLeavesACall) {
  Node node("barrier");
  Region region(node, 4096, 1);
  const MetaList local = list_of({region.part(0, 8, region.local())});
  const MetaList remote = list_of({region.part(8, 8, region.self())});
  Request request = prepared(node, NIXL_WRITE, local, remote, "barrier");
  {
    const PostSeam::Guard throwing(
        [](orbite_nixl_engine_t, orbite_nixl_request_t, const orbite_nixl_post_t*,
           orbite_nixl_result_t*,
           orbite_nixl_error_t*) -> orbite_nixl_status_t { throw std::runtime_error("planted"); });
    EXPECT_EQ(post(node, request), NIXL_ERR_BACKEND);
  }
  {
    const DeregisterSeam::Guard throwing(
        [](orbite_nixl_engine_t, orbite_nixl_registration_t, int32_t*,
           orbite_nixl_error_t*) -> orbite_nixl_status_t { throw 1; });
    nixlBackendMD* metadata = nullptr;
    const nixlBlobDesc descriptor(region.address(), 8, 0);
    ASSERT_EQ(node->registerMem(descriptor, DRAM_SEG, metadata), NIXL_SUCCESS);
    EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
  }
  EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
}

TEST(Lifecycle, ConnectionInformationIsConstantAndNotEmpty) {
  Node node("constant");
  ASSERT_FALSE(node.conn_info().empty());
  Region region(node, 64, 1);
  for (int i = 0; i < 3; ++i) {
    std::string again = "left over";
    EXPECT_EQ(node->getConnInfo(again), NIXL_SUCCESS);
    EXPECT_EQ(again, node.conn_info());
  }
}

TEST(Lifecycle, EngineIsReleasedOnce) {
  const EngineReleaseSeam::Counter released;
  {
    Node node("once");
  }
  EXPECT_EQ(EngineReleaseSeam::calls(), 1);
}

TEST(Lifecycle, CallsOfAForkedChildFailAndTouchNothing) {
  Node node("parent");
  Region region(node, 4096, 1);
  const MetaList local = list_of({region.part(0, 8, region.local())});
  const MetaList remote = list_of({region.part(8, 8, region.self())});
  Request request = prepared(node, NIXL_WRITE, local, remote, "parent");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    nixlBackendMD* metadata = nullptr;
    const nixlBlobDesc descriptor(region.address(), 8, 0);
    notif_list_t notifs;
    const bool refused = node->registerMem(descriptor, DRAM_SEG, metadata) == NIXL_ERR_BACKEND &&
                         post(node, request) == NIXL_ERR_BACKEND &&
                         node->checkXfer(request.handle) == NIXL_ERR_BACKEND &&
                         node->genNotif("parent", "child") == NIXL_ERR_BACKEND &&
                         node->getNotifs(notifs) == NIXL_ERR_BACKEND;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(run(node, request), NIXL_SUCCESS);
  EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
  notif_list_t notifs;
  EXPECT_EQ(node->getNotifs(notifs), NIXL_SUCCESS);
  EXPECT_TRUE(notifs.empty());
}

}  // namespace
}  // namespace orbite::test
