// SPDX-License-Identifier: Apache-2.0
// Symbols that rdma-core's own libraries (libmlx5, libefa, librdmacm, the provider plugins) bind when they
// are loaded. A virtual HCA has no kernel side, so each says "not supported"; they must exist, because a
// program that links libmlx5 would not start otherwise.
#include <infiniband/verbs.h>

#include <cerrno>

#define VHCA_REFUSING(name) \
  int name(void) { return EOPNOTSUPP; }
#define VHCA_REFUSING_POINTER(name) \
  void* name(void) {                \
    errno = EOPNOTSUPP;             \
    return nullptr;                 \
  }
#define VHCA_IGNORING(name) \
  void name(void) {}

#pragma GCC diagnostic ignored "-Wmissing-declarations"

extern "C" {

bool verbs_allow_disassociate_destroy = false;

VHCA_IGNORING(__verbs_log)
VHCA_IGNORING(verbs_init_cq)
VHCA_IGNORING(verbs_register_driver_34)
VHCA_IGNORING(ibv_register_driver)
VHCA_IGNORING(verbs_set_ops)
VHCA_IGNORING(verbs_uninit_context)
VHCA_IGNORING(ibv_copy_ah_attr_from_kern)
VHCA_IGNORING(ibv_copy_path_rec_from_kern)
VHCA_IGNORING(ibv_copy_path_rec_to_kern)
VHCA_IGNORING(ibv_copy_qp_attr_from_kern)
VHCA_REFUSING_POINTER(_verbs_init_and_alloc_context)
VHCA_REFUSING_POINTER(verbs_open_device)
VHCA_REFUSING(__ioctl_final_num_attrs)
VHCA_REFUSING(execute_ioctl)
VHCA_REFUSING(ibv_cmd_advise_mr)
VHCA_REFUSING(ibv_cmd_alloc_dm)
VHCA_REFUSING(ibv_cmd_alloc_mw)
VHCA_REFUSING(ibv_cmd_alloc_pd)
VHCA_REFUSING(ibv_cmd_attach_mcast)
VHCA_REFUSING(ibv_cmd_close_xrcd)
VHCA_REFUSING(ibv_cmd_create_ah)
VHCA_REFUSING(ibv_cmd_create_counters)
VHCA_REFUSING(ibv_cmd_create_cq)
VHCA_REFUSING(ibv_cmd_create_cq_ex)
VHCA_REFUSING(ibv_cmd_create_flow)
VHCA_REFUSING(ibv_cmd_create_flow_action_esp)
VHCA_REFUSING(ibv_cmd_create_qp)
VHCA_REFUSING(ibv_cmd_create_qp_ex)
VHCA_REFUSING(ibv_cmd_create_qp_ex2)
VHCA_REFUSING(ibv_cmd_create_rwq_ind_table)
VHCA_REFUSING(ibv_cmd_create_srq)
VHCA_REFUSING(ibv_cmd_create_srq_ex)
VHCA_REFUSING(ibv_cmd_create_wq)
VHCA_REFUSING(ibv_cmd_dealloc_mw)
VHCA_REFUSING(ibv_cmd_dealloc_pd)
VHCA_REFUSING(ibv_cmd_dereg_mr)
VHCA_REFUSING(ibv_cmd_destroy_ah)
VHCA_REFUSING(ibv_cmd_destroy_counters)
VHCA_REFUSING(ibv_cmd_destroy_cq)
VHCA_REFUSING(ibv_cmd_destroy_flow)
VHCA_REFUSING(ibv_cmd_destroy_flow_action)
VHCA_REFUSING(ibv_cmd_destroy_qp)
VHCA_REFUSING(ibv_cmd_destroy_rwq_ind_table)
VHCA_REFUSING(ibv_cmd_destroy_srq)
VHCA_REFUSING(ibv_cmd_destroy_wq)
VHCA_REFUSING(ibv_cmd_detach_mcast)
VHCA_REFUSING(ibv_cmd_free_dm)
VHCA_REFUSING(ibv_cmd_get_context)
VHCA_REFUSING(ibv_cmd_modify_cq)
VHCA_REFUSING(ibv_cmd_modify_flow_action_esp)
VHCA_REFUSING(ibv_cmd_modify_qp)
VHCA_REFUSING(ibv_cmd_modify_qp_ex)
VHCA_REFUSING(ibv_cmd_modify_srq)
VHCA_REFUSING(ibv_cmd_modify_wq)
VHCA_REFUSING(ibv_cmd_open_qp)
VHCA_REFUSING(ibv_cmd_open_xrcd)
VHCA_REFUSING(ibv_cmd_poll_cq)
VHCA_REFUSING(ibv_cmd_post_recv)
VHCA_REFUSING(ibv_cmd_post_send)
VHCA_REFUSING(ibv_cmd_post_srq_recv)
VHCA_REFUSING(ibv_cmd_query_context)
VHCA_REFUSING(ibv_cmd_query_device_any)
VHCA_REFUSING(ibv_cmd_query_mr)
VHCA_REFUSING(ibv_cmd_query_port)
VHCA_REFUSING(ibv_cmd_query_qp)
VHCA_REFUSING(ibv_cmd_query_srq)
VHCA_REFUSING(ibv_cmd_read_counters)
VHCA_REFUSING(ibv_cmd_reg_dm_mr)
VHCA_REFUSING(ibv_cmd_reg_dmabuf_mr)
VHCA_REFUSING(ibv_cmd_reg_mr)
VHCA_REFUSING(ibv_cmd_req_notify_cq)
VHCA_REFUSING(ibv_cmd_rereg_mr)
VHCA_REFUSING(ibv_cmd_resize_cq)

}  // extern "C"
