! This program tests the module for Fortran. Each rank writes its numbers into one file, and reads the numbers of the
! next rank. mpirun starts the program with the path of a file that the program may make.
program fortran_program
  use, intrinsic :: iso_c_binding
  use mpi
  use outcrop_aggregate
  implicit none

  integer(c_size_t), parameter :: one_variable = 1, first = 0
  integer, parameter :: numbers = 1000
  integer(c_int64_t), parameter :: part_bytes = 8 * numbers
  real(c_double), target :: mine(numbers), found(numbers)
  integer :: rank, ranks, code, next
  character(1000) :: path
  type(c_ptr) :: plan, file

  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
  call get_command_argument(1, path)
  next = modulo(rank + 1, ranks)

  mine = numbers_of(rank)
  plan = plan_for(rank)
  call succeed(outcrop_agg_create(plan, path, 0_c_int, file))
  call succeed(outcrop_agg_write(file, [c_loc(mine)], 0_c_int64_t))
  if (outcrop_agg_notes(file) /= '') call end_all('notes of a run before: ' // outcrop_agg_notes(file))
  call succeed(outcrop_agg_close(file))
  call explained
  call outcrop_agg_free_plan(plan)

  plan = plan_for(next)
  call succeed(outcrop_agg_open(plan, path, 0_c_int, file))
  call succeed(outcrop_agg_read(file, [c_loc(found)], 0_c_int64_t))
  call succeed(outcrop_agg_close(file))
  if (any(found /= numbers_of(next))) call end_all('other numbers were read than were written')
  if (outcrop_agg_open(plan, trim(path) // '.none', 0_c_int, file) /= OUTCROP_AGG_STORAGE) call end_all('no error')
  if (index(outcrop_agg_error(), '.none') == 0) call end_all('an error without the file: ' // outcrop_agg_error())
  call outcrop_agg_free_plan(plan)
  call MPI_Finalize(code)

contains

  function numbers_of(owner) result(values)
    integer, intent(in) :: owner
    real(c_double) :: values(numbers)
    integer :: i
    values = [(1d4 * owner + i, i = 1, numbers)]
  end function

  function plan_for(owner) result(made)
    integer, intent(in) :: owner
    type(c_ptr) :: made, declaration
    call succeed(outcrop_agg_declare(one_variable, declaration))
    call succeed(outcrop_agg_add_contiguous(declaration, first, owner * part_bytes, part_bytes, 0_c_int64_t))
    call succeed(outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, MPI_INFO_NULL, made))
    call outcrop_agg_free_declaration(declaration)
  end function

  ! Checks that the plan's text is complete to its last line after a step was written. Without a plan, the text must be
  ! empty.
  subroutine explained
    character(:), allocatable :: text
    text = outcrop_agg_explain(plan)
    if (index(text, 'predicted ') == 0) call end_all('no prediction: ' // text)
    if (index(text, 'measured at rank ') == 0) call end_all('nothing measured: ' // text)
    if (text(len(text):) /= new_line('a')) call end_all('a line without an end: ' // text)
    if (outcrop_agg_explain(c_null_ptr) /= '') call end_all('nothing was explained')
    if (outcrop_agg_transport(plan) /= 'messages') call end_all('carried by ' // outcrop_agg_transport(plan))
    if (index(outcrop_agg_version(), '.') == 0) call end_all('no version: ' // outcrop_agg_version())
  end subroutine

  subroutine succeed(outcome)
    integer(c_int), intent(in) :: outcome
    if (outcome /= OUTCROP_AGG_OK) call end_all(outcrop_agg_error())
  end subroutine

  subroutine end_all(why)
    character(*), intent(in) :: why
    integer :: ignored
    write (*, *) 'rank', rank, ': ', why
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine
end program
