! A wave on a grid, and a file that is read back at the end.
program waves
  implicit none
  integer, parameter :: n = 600, steps = 3000
  real(8), allocatable :: before(:,:), now(:,:), after(:,:)
  integer :: step, i, j, unit
  real(8) :: energy, check
  allocate(before(n,n), now(n,n), after(n,n))
  do j = 1, n
    do i = 1, n
      now(i,j) = sin(0.05d0 * i) * cos(0.03d0 * j)
    end do
  end do
  before = now
  after = 0
  open(newunit=unit, file='energies.txt', status='replace', action='readwrite')
  do step = 1, steps
    do j = 2, n - 1
      do i = 2, n - 1
        after(i,j) = 2 * now(i,j) - before(i,j) &
          + 0.2d0 * (now(i+1,j) + now(i-1,j) + now(i,j+1) + now(i,j-1) - 4 * now(i,j))
      end do
    end do
    before = now
    now = after
    if (mod(step, 200) == 0) then
      energy = sum(now * now)
      write(unit, '(i6, es24.15)') step, energy
      print '(i6, es24.15)', step, energy
    end if
  end do
  rewind(unit)
  check = 0
  do i = 1, steps / 200
    read(unit, *) j, energy
    check = check + energy
  end do
  print '(a, es24.15)', 'end ', check
end program
