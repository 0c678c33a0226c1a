# Chooses the cards that the CUDA code is compiled for, and prints the choice in one line:
#   1. CMAKE_CUDA_ARCHITECTURES or CUDAARCHS, if given;
#   2. otherwise the cards of this machine, as the driver reports them;
#   3. without a card: machine code for Hopper (9.0), with PTX for newer cards, and PTX for 8.0, which every card from
#      8.0 on compiles for itself when it first runs. That PTX takes a quarter of the build (4 minutes of one core
#      instead of 3), so other cards are compiled for only if they are named. Older ones than 8.0 lack instructions.

# Turns the driver's answer, one line for each card such as "9.0", into a list such as 90;120. For a card that nvcc does
# not know, the list has PTX of the newest one below it that nvcc knows.
function(cards_of answer compiler out)
  execute_process(COMMAND ${compiler} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  string(REGEX MATCHALL "compute_[0-9]+" known "${known}")
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" cards "${answer}")
  set(list)
  foreach(card ${cards})
    string(REPLACE "." "" card ${card})
    set(below)
    foreach(arch ${known})
      string(REPLACE "compute_" "" arch ${arch})
      if(arch LESS_EQUAL card AND (NOT below OR arch GREATER below))
        set(below ${arch})
      endif()
    endforeach()
    if(NOT known OR below EQUAL card)
      list(APPEND list ${card})
    elseif(below)
      list(APPEND list ${below}-virtual)
    endif()
  endforeach()
  list(REMOVE_DUPLICATES list)
  set(${out} "${list}" PARENT_SCOPE)
endfunction()

function(choose_cards compiler out why)
  find_program(NVIDIA_SMI nvidia-smi)
  set(answer)
  if(NVIDIA_SMI)
    execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE answer RESULT_VARIABLE failed ERROR_QUIET TIMEOUT 30)
    if(failed)
      set(answer)
    endif()
  endif()
  cards_of("${answer}" ${compiler} cards)
  if(cards)
    set(${why} "the cards here" PARENT_SCOPE)
  else()
    set(cards 80-virtual 90)
    set(${why} "no usable card here; 80-virtual: PTX, for every card from 8.0 on" PARENT_SCOPE)
  endif()
  set(${out} "${cards}" PARENT_SCOPE)
endfunction()

if(CMAKE_CUDA_ARCHITECTURES)
  set(CARDS_WHY "as CMAKE_CUDA_ARCHITECTURES says")
elseif(NOT "$ENV{CUDAARCHS}" STREQUAL "")
  set(CMAKE_CUDA_ARCHITECTURES $ENV{CUDAARCHS})
  set(CARDS_WHY "as CUDAARCHS says")
else()
  choose_cards(${CMAKE_CUDA_COMPILER} CMAKE_CUDA_ARCHITECTURES CARDS_WHY)
endif()
message(NOTICE "minrnn: CUDA code for compute capability ${CMAKE_CUDA_ARCHITECTURES} (${CARDS_WHY})")
