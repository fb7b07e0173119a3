! This module makes the C interface of outcrop_aggregate.h available to Fortran. The header explains each function.
!
!     use outcrop_aggregate
!     type(c_ptr) :: plan = c_null_ptr
!     code = outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, MPI_INFO_NULL, plan)
!
! Handles are type(c_ptr). Pass variables as an array of their addresses, c_loc(...). Sizes and offsets are in bytes and
! have the type integer(c_int64_t). Variables, axes and starts count from 0. Axes are in C order: the last axis is
! contiguous. With mpi_f08, pass communicator%MPI_VAL and info%MPI_VAL.
module outcrop_aggregate
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int), parameter :: OUTCROP_AGG_OK = 0, OUTCROP_AGG_INPUT = 1, OUTCROP_AGG_STORAGE = 2
  integer(c_int), parameter :: OUTCROP_AGG_COMMUNICATION = 3, OUTCROP_AGG_MEMORY = 4, OUTCROP_AGG_BUG = 5
  integer(c_int), parameter :: OUTCROP_AGG_DURABLE = 1, OUTCROP_AGG_BUFFERED = 2, OUTCROP_AGG_DIRECT = 4
  integer(c_int), parameter :: OUTCROP_AGG_WRITABLE = 8, OUTCROP_AGG_NODE_FILES = 16

  interface
    integer(c_int) function outcrop_agg_declare(variables, made) bind(c)
      import :: c_int, c_ptr, c_size_t
      integer(c_size_t), value :: variables
      type(c_ptr), intent(out) :: made
    end function

    integer(c_int) function outcrop_agg_add_contiguous(declaration, variable, file_offset, bytes, memory_offset) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: declaration
      integer(c_size_t), value :: variable
      integer(c_int64_t), value :: file_offset, bytes, memory_offset
    end function

    integer(c_int) function outcrop_agg_add_strided(declaration, variable, file_offset, count, block_bytes, &
        file_stride_bytes, memory_offset, memory_stride_bytes) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: declaration
      integer(c_size_t), value :: variable
      integer(c_int64_t), value :: file_offset, count, block_bytes, file_stride_bytes, memory_offset, memory_stride_bytes
    end function

    integer(c_int) function outcrop_agg_add_subarray(declaration, variable, dims, sizes, subsizes, starts, item_bytes, &
        file_offset) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: declaration
      integer(c_size_t), value :: variable
      integer(c_int), value :: dims
      integer(c_int64_t), intent(in) :: sizes(dims), subsizes(dims), starts(dims)
      integer(c_int64_t), value :: item_bytes, file_offset
    end function

    subroutine outcrop_agg_free_declaration(declaration) bind(c)
      import :: c_ptr
      type(c_ptr), intent(inout) :: declaration
    end subroutine

    integer(c_int) function outcrop_agg_make_plan(communicator, declaration, hints, made) &
        bind(c, name='outcrop_agg_make_plan_f')
      import :: c_int, c_ptr
      integer(c_int), value :: communicator, hints
      type(c_ptr), value :: declaration
      type(c_ptr), intent(out) :: made
    end function

    integer(c_int) function outcrop_agg_memory_bytes(plan, variable, bytes) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: plan
      integer(c_size_t), value :: variable
      integer(c_int64_t), intent(out) :: bytes
    end function

    type(c_ptr) function outcrop_agg_transport_c(plan) bind(c, name='outcrop_agg_transport')
      import :: c_ptr
      type(c_ptr), value :: plan
    end function

    subroutine outcrop_agg_free_plan(plan) bind(c)
      import :: c_ptr
      type(c_ptr), intent(inout) :: plan
    end subroutine

    integer(c_int) function outcrop_agg_create_c(plan, path, flags, made) bind(c, name='outcrop_agg_create')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: plan
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: flags
      type(c_ptr), intent(out) :: made
    end function

    integer(c_int) function outcrop_agg_open_c(plan, path, flags, made) bind(c, name='outcrop_agg_open')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: plan
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: flags
      type(c_ptr), intent(out) :: made
    end function

    integer(c_int) function outcrop_agg_write(file, memory, base) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: file
      type(c_ptr), intent(in) :: memory(*)
      integer(c_int64_t), value :: base
    end function

    integer(c_int) function outcrop_agg_read(file, memory, base) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: file
      type(c_ptr), intent(in) :: memory(*)
      integer(c_int64_t), value :: base
    end function

    integer(c_int) function outcrop_agg_begin_write(file, memory, base, made) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: file
      type(c_ptr), intent(in) :: memory(*)
      integer(c_int64_t), value :: base
      type(c_ptr), intent(out) :: made
    end function

    integer(c_int) function outcrop_agg_begin_read(file, memory, base, made) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: file
      type(c_ptr), intent(in) :: memory(*)
      integer(c_int64_t), value :: base
      type(c_ptr), intent(out) :: made
    end function

    integer(c_int) function outcrop_agg_test(operation, done) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: operation
      integer(c_int), intent(out) :: done
    end function

    integer(c_int) function outcrop_agg_wait(operation) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: operation
    end function

    integer(c_int) function outcrop_agg_flush(file) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: file
    end function

    integer(c_int) function outcrop_agg_close(file) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: file
    end function

    integer(c_int) function outcrop_agg_merge_c(index, target) bind(c, name='outcrop_agg_merge')
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: index(*), target(*)
    end function

    type(c_ptr) function outcrop_agg_notes_c(file) bind(c, name='outcrop_agg_notes')
      import :: c_ptr
      type(c_ptr), value :: file
    end function

    type(c_ptr) function outcrop_agg_explain_c(plan) bind(c, name='outcrop_agg_explain')
      import :: c_ptr
      type(c_ptr), value :: plan
    end function

    type(c_ptr) function outcrop_agg_error_c() bind(c, name='outcrop_agg_error')
      import :: c_ptr
    end function

    type(c_ptr) function outcrop_agg_version_c() bind(c, name='outcrop_agg_version')
      import :: c_ptr
    end function

    integer(c_size_t) function outcrop_agg_length_c(text) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

contains

  integer(c_int) function outcrop_agg_create(plan, path, flags, made)
    type(c_ptr), intent(in) :: plan
    character(*), intent(in) :: path
    integer(c_int), intent(in) :: flags
    type(c_ptr), intent(out) :: made
    outcrop_agg_create = outcrop_agg_create_c(plan, trim(path) // c_null_char, flags, made)
  end function

  integer(c_int) function outcrop_agg_open(plan, path, flags, made)
    type(c_ptr), intent(in) :: plan
    character(*), intent(in) :: path
    integer(c_int), intent(in) :: flags
    type(c_ptr), intent(out) :: made
    outcrop_agg_open = outcrop_agg_open_c(plan, trim(path) // c_null_char, flags, made)
  end function

  integer(c_int) function outcrop_agg_merge(index, target)
    character(*), intent(in) :: index, target
    outcrop_agg_merge = outcrop_agg_merge_c(trim(index) // c_null_char, trim(target) // c_null_char)
  end function

  ! Returns one line for each step that an earlier run had left in the stage.
  function outcrop_agg_notes(file) result(text)
    type(c_ptr), intent(in) :: file
    character(:), allocatable :: text
    text = outcrop_agg_text(outcrop_agg_notes_c(file))
  end function

  ! Returns a text that shows the aggregators and why they were chosen. Lines end with new_line('a').
  function outcrop_agg_explain(plan) result(text)
    type(c_ptr), intent(in) :: plan
    character(:), allocatable :: text
    text = outcrop_agg_text(outcrop_agg_explain_c(plan))
  end function

  ! Returns the way in which bytes are sent between nodes: 'messages', 'rma', or 'messages, though ...' with the reason.
  function outcrop_agg_transport(plan) result(text)
    type(c_ptr), intent(in) :: plan
    character(:), allocatable :: text
    text = outcrop_agg_text(outcrop_agg_transport_c(plan))
  end function

  ! Returns the last error of this thread, in one line.
  function outcrop_agg_error() result(text)
    character(:), allocatable :: text
    text = outcrop_agg_text(outcrop_agg_error_c())
  end function

  ! Returns '0.1.0'.
  function outcrop_agg_version() result(text)
    character(:), allocatable :: text
    text = outcrop_agg_text(outcrop_agg_version_c())
  end function

  ! Returns a copy of the C text at an address.
  function outcrop_agg_text(address) result(text)
    type(c_ptr), intent(in) :: address
    character(:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer(c_size_t) :: length, i
    length = outcrop_agg_length_c(address)
    call c_f_pointer(address, characters, [length])
    allocate (character(length) :: text)
    do i = 1, length
      text(i:i) = characters(i)
    end do
  end function
end module
