! Condor's functions from Fortran: an image where it was wanted, then away, and back.
program inside
    implicit none
    logical :: there
    integer :: i
    real(8) :: total

    call init_image_with_file_name('inside.img')
    total = 0
    do i = 1, 1000000
        total = total + 1 / real(i, 8)
    end do
    call condor_ckpt_disable()
    call ckpt()
    inquire(file='inside.img', exist=there)
    print '(a, l2)', 'while disabled', there
    call _condor_ckpt_enable()
    inquire(file='inside.img', exist=there)
    print '(a, l2)', 'behind that', there
    call ckpt_and_exit()
    print '(a, f12.6)', 'total', total
end program
