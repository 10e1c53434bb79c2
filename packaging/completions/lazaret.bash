# bash completion of lazaret; generated, do not edit.
# shellcheck shell=bash

_lazaret() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd='' words='' i
    COMPREPLY=()
    # bash splits --flag=value at the equals sign
    if [[ $cur == = ]]; then
        cur=''
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$cmd ${COMP_WORDS[i]}" in
            ' init') cmd='init' ;;
            ' doctor') cmd='doctor' ;;
            ' status') cmd='status' ;;
            ' domain') cmd='domain' ;;
            ' config') cmd='config' ;;
            ' trust') cmd='trust' ;;
            ' completion') cmd='completion' ;;
            ' help') cmd='help' ;;
            'config show') cmd='config show' ;;
            'config check') cmd='config check' ;;
        esac
    done
    case "$cmd $prev" in
        'init --scope')
            mapfile -t COMPREPLY < <(compgen -W 'user system' -- "$cur")
            return
            ;;
        'init --runtime-path')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'init --podman-version')
            return
            ;;
        'domain --profile' | 'domain -p')
            return
            ;;
        'domain --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'config show --profile')
            return
            ;;
        'config show --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'config show --workspace')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'config check --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'config check --workspace')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
    esac
    case $cmd in
        '')
            if [[ $cur == -* ]]; then
                words='--version --help -h'
            else
                words='init doctor status domain config trust completion help'
            fi
            ;;
        'init')
            if [[ $cur == -* ]]; then
                words='--scope --runtime-path --podman-version --dry-run --uninstall --force --help -h'
            else
                words=''
            fi
            ;;
        'doctor')
            if [[ $cur == -* ]]; then
                words='--json --help -h'
            else
                words=''
            fi
            ;;
        'status')
            if [[ $cur == -* ]]; then
                words='--json --help -h'
            else
                words=''
            fi
            ;;
        'domain')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --json --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'config')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words='show check'
            fi
            ;;
        'config show')
            if [[ $cur == -* ]]; then
                words='--profile --json --config --workspace --help -h'
            else
                words=''
            fi
            ;;
        'config check')
            if [[ $cur == -* ]]; then
                words='--config --workspace --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'trust')
            if [[ $cur == -* ]]; then
                words='--yes -y --revoke --list --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'completion')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words='bash zsh fish'
            fi
            ;;
        'help')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words=''
            fi
            ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _lazaret lazaret
